//! What the image holds and says about itself.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::engine::{docker, image};

const MOST_OCTETS: u64 = 25_000_000;

#[test]
fn it_says_who_runs_what_and_how_to_ask_whether_it_is_well() {
    let Some(image) = image() else { return };
    let config: Value =
        serde_json::from_str(&docker(&["image", "inspect", "--format", "{{json .Config}}", &image])).unwrap();
    for (key, value) in [
        ("User", json!("65532:65532")),
        ("Entrypoint", json!(["/egret"])),
        ("Cmd", json!(["serve"])),
        ("WorkingDir", json!("/var/lib/egret")),
        ("Volumes", json!({"/var/lib/egret": {}})),
        ("ExposedPorts", json!({"3128/tcp": {}})),
        ("StopSignal", json!("SIGTERM")),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    assert_eq!(config["Healthcheck"]["Test"], json!(["CMD", "/egret", "ready"]));
    let labels = &config["Labels"];
    assert_eq!(labels["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(labels["org.opencontainers.image.licenses"], "MIT OR Apache-2.0");
}

#[test]
fn it_holds_one_static_binary_and_its_configuration() {
    let Some(image) = image() else { return };
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let id = docker(&["create", &image]);
    docker(&["export", "--output", &place("image.tar"), &id]);
    docker(&["cp", &format!("{id}:/egret"), &place("egret")]);
    docker(&["rm", "--volumes", &id]);

    let listed = Command::new("tar").args(["-tf", &place("image.tar")]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    // Folders, and what the engine puts into every container, are not the image's.
    let engine =
        ["dev/", "proc/", "sys/", ".dockerenv", "etc/hostname", "etc/hosts", "etc/mtab", "etc/resolv.conf"];
    let own = |path: &&str| !path.ends_with('/') && !engine.iter().any(|start| path.starts_with(start));
    let (rules, others): (Vec<&str>, Vec<&str>) =
        listed.lines().filter(own).partition(|path| path.starts_with("etc/egret/rules/"));
    assert_eq!(others, ["egret", "etc/egret/egret.toml"]);
    assert!(rules.contains(&"etc/egret/rules/github-read.toml"), "{rules:?}");

    let binary = fs::read(place("egret")).unwrap();
    assert!((binary.len() as u64) < MOST_OCTETS, "{} octets", binary.len());
    assert!(!has_interpreter(&binary), "the binary asks for a dynamic linker");
}

/// Does a 64-bit little-endian ELF file have a `PT_INTERP` segment (System V ABI, chapter 5)?
fn has_interpreter(elf: &[u8]) -> bool {
    let number = |at: usize, length: usize| {
        elf[at..at + length].iter().rev().fold(0_usize, |sum, &byte| sum << 8 | usize::from(byte))
    };
    assert_eq!(&elf[..6], b"\x7fELF\x02\x01", "not such a file");
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|index| number(table + index * size, 4) == 3)
}
