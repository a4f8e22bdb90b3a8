//! Registries of one package each, made on the spot: the index on one host, the files on another.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Algorithm, SHA256, SHA512, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::tool;
use crate::world::{FILES, INDEX, World};

pub const WHEEL: &str = "warbler_of_egret-1.0-py3-none-any.whl";
pub const DEB: &str = "bittern_1.0_all.deb";

/// Argument: the file to write. A wheel is a zip file with these members (PEP 427).
const PACK: &str = r#"
import sys, zipfile
info = "warbler_of_egret-1.0.dist-info/"
files = {"warbler_of_egret.py": "SONG = 'reed'\n"}
files[info + "METADATA"] = "Metadata-Version: 2.1\nName: warbler-of-egret\nVersion: 1.0\n"
files[info + "WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
files[info + "RECORD"] = "".join(name + ",,\n" for name in [*files, info + "RECORD"])
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    for name in files:
        wheel.writestr(name, files[name])
"#;

fn hex(algorithm: &'static Algorithm, data: &[u8]) -> String {
    digest(algorithm, data).as_ref().iter().fold(String::new(), |mut text, octet| {
        write!(text, "{octet:02x}").unwrap();
        text
    })
}

/// A simple repository (PEP 503) with one wheel.
pub fn python(world: &World, interpreter: &Path) {
    let wheel = world.web(FILES).join("wheels").join(WHEEL);
    std::fs::create_dir_all(wheel.parent().unwrap()).unwrap();
    let mut pack = tool::command(interpreter, &world.home());
    pack.args(["-c", PACK]).arg(&wheel);
    tool::run(pack).success();
    let sum = hex(&SHA256, &std::fs::read(&wheel).unwrap());
    let page = format!(
        "<!DOCTYPE html><html><body><a href=\"https://{FILES}/wheels/{WHEEL}#sha256={sum}\">{WHEEL}</a></body></html>"
    );
    world.write(INDEX, "simple/warbler-of-egret/index.html", page);
    let root =
        "<!DOCTYPE html><html><body><a href=\"/simple/warbler-of-egret/\">warbler-of-egret</a></body></html>";
    world.write(INDEX, "simple/index.html", root);
}

/// Packs a folder with these files, as `tar` does, and gives the archive.
fn pack(world: &World, folder: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let source = world.home().join("source");
    for (name, text) in files {
        let file = source.join(folder).join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let mut tar = tool::command(&tool::find("tar").unwrap(), &source);
    tar.args(["--gzip", "--create", "--file", "packed.tgz", folder]);
    tool::run(tar).success();
    let packed = std::fs::read(source.join("packed.tgz")).unwrap();
    std::fs::remove_dir_all(source).unwrap();
    packed
}

/// A sparse index with one crate.
pub fn crates(world: &World) {
    let manifest = "[package]\nname = \"dunlin\"\nversion = \"1.0.0\"\nedition = \"2024\"\n";
    let files = [("Cargo.toml", manifest), ("src/lib.rs", "pub const SONG: &str = \"reed\";\n")];
    let package = pack(world, "dunlin-1.0.0", &files);
    let line = json!({
        "name": "dunlin", "vers": "1.0.0", "deps": [], "cksum": hex(&SHA256, &package), "features": {}, "yanked": false,
    });
    world.write(INDEX, "crates/du/nl/dunlin", format!("{line}\n"));
    world.write(FILES, "crates/dunlin/1.0.0/download", package);
    world.write(INDEX, "crates/config.json", json!({ "dl": format!("https://{FILES}/crates") }).to_string());
}

/// An npm registry with one package.
pub fn packages(world: &World) {
    let manifest = "{\"name\": \"wagtail\", \"version\": \"1.0.0\", \"main\": \"index.js\"}";
    let tarball =
        pack(world, "package", &[("package.json", manifest), ("index.js", "module.exports = 'reed';\n")]);
    let integrity = format!("sha512-{}", STANDARD.encode(digest(&SHA512, &tarball)));
    let dist = json!({ "tarball": format!("https://{FILES}/npm/wagtail-1.0.0.tgz"), "integrity": integrity });
    let version = json!({ "name": "wagtail", "version": "1.0.0", "main": "index.js", "dist": dist });
    let all =
        json!({ "name": "wagtail", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version } });
    // A path that ends in a slash would be a folder's; the document is a file.
    world.write(INDEX, "npm/wagtail", all.to_string());
    world.write(FILES, "npm/wagtail-1.0.0.tgz", tarball);
}

/// A flat apt repository without a signature. Its package is on the second host: apt takes mirrors
/// from a list.
pub fn debian(world: &World) {
    let package: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    let list = format!(
        "Package: bittern\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@{INDEX}>\n\
         Filename: ./{DEB}\nSize: {}\nSHA256: {}\nDescription: a bird in the reeds\n\n",
        package.len(),
        hex(&SHA256, &package),
    );
    let release = format!(
        "Suite: test\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {} {} Packages\n",
        hex(&SHA256, list.as_bytes()),
        list.len(),
    );
    world.write(FILES, "debian/Packages", list);
    world.write(FILES, "debian/Release", release);
    world.write(FILES, &format!("debian/{DEB}"), package);
    world.write(INDEX, "mirrors.txt", format!("http://{FILES}/debian/\n"));
}

/// Where the newest crate of a cargo home was unpacked.
pub fn unpacked(cargo_home: &Path) -> PathBuf {
    let registry =
        std::fs::read_dir(cargo_home.join("registry/src")).unwrap().next().unwrap().unwrap().path();
    registry.join("dunlin-1.0.0/src/lib.rs")
}

/// A project that depends on the package of npm's registry on this host.
pub fn npm_project(world: &World, folder: &Path, host: &str, more: &str) {
    let ca = world.ca();
    let settings = format!(
        "registry=https://{host}/npm/\ncafile={}\nfetch-retries=0\naudit=false\nfund=false\nupdate-notifier=false\n{more}",
        ca.display()
    );
    let manifest = json!({ "name": "heron", "version": "0.1.0", "dependencies": { "wagtail": "1" } });
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(".npmrc"), settings).unwrap();
    std::fs::write(folder.join("package.json"), manifest.to_string()).unwrap();
}
