//! `egret registry import`: the settings of clients become rules, and their registries say where
//! their files are.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::registries;
use crate::site::{self, Site};
use crate::support::egret::{BINARY, Egret};
use crate::tool;
use crate::world::{FILES, INDEX, OTHER, SECRET, World, text};

/// Settings of a machine, below a root.
fn machine(world: &World) -> PathBuf {
    let root = world.home().join("machine");
    for (path, written) in [
        (
            "root/.npmrc",
            format!("registry=https://user:{SECRET}@{INDEX}/npm/\n//{INDEX}/npm/:_authToken={SECRET}\n"),
        ),
        ("etc/pip.conf", format!("[global]\nindex-url = https://{SECRET}:x@{INDEX}/simple?token={SECRET}\n")),
        (
            "root/.cargo/config.toml",
            format!("[registries.corp]\nindex = \"sparse+https://{INDEX}/crates/\"\ntoken = \"{SECRET}\"\n"),
        ),
        ("etc/apt/sources.list", format!("deb mirror+http://{INDEX}/mirrors.txt ./\n")),
    ] {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, written).unwrap();
    }
    root
}

pub fn import(dir: &Path, args: &[&str], env: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["registry", "import"]).args(args).current_dir(dir).env_clear();
    command.envs(env.iter().copied()).output().unwrap()
}

/// A folder with the configuration of `world` whose policy `main` has a rule set `imported`.
fn place(world: &World) -> PathBuf {
    let dir = world.home().join("egret");
    std::fs::create_dir_all(dir.join("rules")).unwrap();
    std::fs::write(dir.join("egret.toml"), world.config("rules = [\"imported\"]")).unwrap();
    std::fs::write(dir.join("rules/imported.toml"), "# Kept.\n").unwrap();
    dir
}

#[test]
fn registries_say_where_their_files_are() {
    let world = World::start();
    registries::crates(&world);
    registries::packages(&world);
    registries::debian(&world);
    let page = format!("<a href=\"https://{FILES}/x-1.0.tar.gz\">x</a>");
    world.write(INDEX, "simple/x/index.html", page);
    world.write(INDEX, "simple/index.html", "<a href=\"x/\">x</a>");
    let (root, dir, ca) = (machine(&world), place(&world), world.ca());
    let root = root.to_str().unwrap();
    let env = [("SSL_CERT_FILE", ca.as_path())];
    let args = ["--root", root, "--config", "egret.toml", "--package", "wagtail"];
    let written = import(&dir, &[&args[..], &["--write", "rules/imported.toml"]].concat(), &env);
    assert!(written.status.success(), "{written:?}");
    let rules = std::fs::read_to_string(dir.join("rules/imported.toml")).unwrap();
    assert!(rules.starts_with("# Kept.\n"), "{rules}");
    for line in [
        format!("# npm: ~/.npmrc:1 (registry): tarballs of {INDEX}:443\n"),
        format!("# pip: /etc/pip.conf:2 (index-url): files of {INDEX}:443\n"),
        format!("# cargo: ~/.cargo/config.toml:2 (a registry's index): crates of {INDEX}:443\n"),
        format!("# apt: /etc/apt/sources.list:1 (a source): a mirror of {INDEX}:80\n"),
        format!("[[allow]]\ndomains = [\"{INDEX}\"]\nports = [443]\n"),
        format!("[[allow]]\ndomains = [\"{FILES}\"]\nports = [443]\n"),
        format!("[[allow]]\ndomains = [\"{FILES}\"]\nports = [80]\n"),
    ] {
        assert!(rules.contains(&line), "{line}{rules}");
    }
    assert_eq!(rules.matches("[[allow]]").count(), 4, "{rules}");
    let checked =
        Command::new(BINARY).args(["check", "--config", "egret.toml"]).current_dir(&dir).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");

    // Once more there is nothing to add, and no difference.
    let again = import(&dir, &[&args[..], &["--write", "rules/imported.toml"]].concat(), &env);
    assert!(text(&again.stderr).contains("nothing is new"), "{again:?}");
    let same = import(&dir, &[&args[..], &["--against", "rules/imported.toml"]].concat(), &env);
    assert_eq!((same.status.code(), text(&same.stdout).as_str()), (Some(0), ""), "{same:?}");
    let without = import(&dir, &["--root", root, "--offline", "--against", "rules/imported.toml"], &env);
    let lines = text(&without.stdout);
    assert_eq!((without.status.code(), lines.lines().count()), (Some(1), 2), "{without:?}");
    assert!(lines.lines().all(|line| line.starts_with(&format!("- {FILES}  ports "))), "{lines}");

    for output in [&written, &again, &same, &without] {
        let all = format!("{}{}{rules}", text(&output.stdout), text(&output.stderr));
        assert!(!all.contains(SECRET), "{all}");
    }
    assert!(world.strays().is_empty(), "{:?}", world.strays());
}

#[test]
fn imported_rules_let_the_client_install_and_nothing_else() {
    let world = World::start();
    let Some(program) = tool::find("npm") else { return };
    registries::packages(&world);
    let ca = world.ca();
    let (home, project) = (world.home(), world.home().join("project"));
    registries::npm_project(&world, &project, INDEX, "");
    let egret = Egret::with(world.config("")).start();
    let args = [
        "npm",
        "--config",
        "egret.toml",
        "--home",
        home.to_str().unwrap(),
        "--project",
        project.to_str().unwrap(),
        "--package",
        "wagtail",
    ];
    let imported = import(egret.dir(), &args, &[("SSL_CERT_FILE", &ca)]);
    assert!(imported.status.success(), "{imported:?}");
    std::fs::create_dir(egret.dir().join("rules")).unwrap();
    std::fs::write(egret.dir().join("rules/imported.toml"), &imported.stdout).unwrap();
    egret.configure(&world.config("rules = [\"imported\"]"));
    assert_eq!(egret.reload().status, 200, "{}", egret.log());
    let mut command = world.client(&egret, &program);
    command.current_dir(&project).args(["install", "--ignore-scripts"]);
    tool::run(command).success();
    assert!(project.join("node_modules/wagtail/index.js").is_file());
    let denied = egret.events("decision").into_iter().filter(|record| record["verdict"] == "deny");
    assert_eq!(denied.count(), 0);
}

#[test]
fn a_scope_that_has_a_registry_is_named_to_no_other() {
    let world = World::start();
    let dir = place(&world);
    let tarball = format!("{{\"dist\": {{\"tarball\": \"https://{FILES}/x.tgz\"}}}}");
    world.write(INDEX, "npm/@corp%2fx/latest", tarball);
    let settings = format!("registry=https://{OTHER}/npm/\n@corp:registry=https://{INDEX}/npm/\n");
    std::fs::write(world.home().join(".npmrc"), settings).unwrap();
    let (home, ca) = (world.home(), world.ca());
    let args = ["npm", "--home", home.to_str().unwrap(), "--config", "egret.toml", "--package", "@corp/x"];
    let output = import(&dir, &args, &[("SSL_CERT_FILE", &ca)]);
    let rules = text(&output.stdout);
    assert!(rules.contains(&format!("(a scope's registry): tarballs of {INDEX}:443\n")), "{output:?}");
    assert!(rules.contains(&format!("{OTHER}:443, npm: ~/.npmrc:1 (registry): it answers 404")), "{rules}");
    let paths = world.asked(OTHER);
    assert!(!paths.is_empty() && paths.iter().all(|path| !path.contains("corp")), "{paths:?}");
    assert!(world.asked(INDEX).contains(&"/npm/@corp%2fx/latest".to_owned()), "{:?}", world.asked(INDEX));
}

#[test]
fn private_registries_are_asked_only_where_the_operator_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let web = dir.path().join("web");
    std::fs::create_dir_all(web.join("crates")).unwrap();
    let site = Site::start(std::sync::Arc::new(site::files(&web)), None);
    let config = format!("{{\"dl\": \"http://{FILES}:{}/dl\"}}", site.port());
    std::fs::write(web.join("crates/config.json"), config).unwrap();
    let name = format!("{INDEX}:{}", site.port());
    std::fs::create_dir_all(dir.path().join("root/.cargo")).unwrap();
    let registry = format!("[registries.corp]\nindex = \"sparse+http://{name}/crates/\"\n");
    std::fs::write(dir.path().join("root/.cargo/config.toml"), registry).unwrap();
    let hosts = format!("hosts = {{ \"{INDEX}\" = [\"127.0.0.1\"], \"{FILES}\" = [\"127.0.0.1\"] }}");
    std::fs::write(dir.path().join("egret.toml"), format!("[dns]\nservers = [\"127.0.0.1:9\"]\n{hosts}\n"))
        .unwrap();

    let args = ["cargo", "--root", ".", "--config", "egret.toml"];
    let refused = import(dir.path(), &args, &[]);
    let rules = text(&refused.stdout);
    assert!(refused.status.success() && site.served().is_empty(), "{refused:?}");
    assert!(rules.contains("name its network with --private CIDR"), "{rules}");
    assert!(!rules.contains(FILES) && !rules.contains("\naddresses"), "{rules}");

    let allowed = import(dir.path(), &[&args[..], &["--private", "127.0.0.0/8"]].concat(), &[]);
    let rules = text(&allowed.stdout);
    assert_eq!(site.served().len(), 1, "{allowed:?}");
    for host in [INDEX, FILES] {
        let rule =
            format!("domains = [\"{host}\"]\nports = [{}]\naddresses = [\"127.0.0.0/8\"]\n", site.port());
        assert!(rules.contains(&rule), "{rule}{rules}");
    }

    // An operator's denial holds, and nothing unlocks what is forbidden.
    let denied =
        format!("[dns]\nservers = [\"127.0.0.1:9\"]\n{hosts}\n\n[[deny]]\ndomains = [\"{INDEX}\"]\n");
    std::fs::write(dir.path().join("egret.toml"), denied).unwrap();
    let denied = import(dir.path(), &[&args[..], &["--private", "127.0.0.0/8"]].concat(), &[]);
    assert_eq!(site.served().len(), 1, "{denied:?}");
    let forbidden = import(dir.path(), &[&args[..], &["--private", "169.254.169.254/32"]].concat(), &[]);
    assert_eq!((forbidden.status.code(), text(&forbidden.stdout).as_str()), (Some(2), ""), "{forbidden:?}");
}

#[test]
fn a_file_that_is_not_understood_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("etc")).unwrap();
    std::fs::write(dir.path().join("etc/pip.conf"), format!("[global]\nindex-url {SECRET}\n")).unwrap();
    std::fs::write(dir.path().join("rules.toml"), "# mine\n").unwrap();
    let args = ["--root", ".", "--offline", "--write", "rules.toml"];
    let output = import(dir.path(), &args, &[]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("/etc/pip.conf:2: neither a [section] nor KEY = VALUE") && !told.contains(SECRET),
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(dir.path().join("rules.toml")).unwrap(), "# mine\n");
    // Nothing at all: no rule, and how to find the registries out.
    let nothing = import(dir.path(), &["npm", "--root", ".", "--offline"], &[]);
    assert!(
        text(&nothing.stderr).contains("egret: npm has nothing set, and egret does not know its own: "),
        "{nothing:?}"
    );
    assert!(!text(&nothing.stdout).contains("[[allow]]"), "{nothing:?}");
}

#[test]
fn clients_are_asked_for_what_is_built_into_them() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let npm = format!("[ \"$*\" = 'config get registry' ] && echo 'https://user:{SECRET}@{INDEX}/'");
    for (name, script) in [("npm", npm.as_str()), ("go", "exit 3")] {
        std::fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let env = [("HOME", dir.path()), ("PATH", &bin)];
    let output = import(dir.path(), &["--offline", "--ask-clients", "npm", "pip", "go"], &env);
    let (rules, told) = (text(&output.stdout), text(&output.stderr));
    let rule = format!(
        "# npm: `npm config get registry` (its own answer)\n[[allow]]\ndomains = [\"{INDEX}\"]\nports = [443]\n"
    );
    assert!(output.status.success() && rules.contains(&rule) && !rules.contains(SECRET), "{output:?}");
    assert!(told.contains("`go env GOPROXY GOSUMDB` said nothing: exit status: 3"), "{told}");
    assert!(
        told.contains("`pip install --help` said nothing: ") && told.contains("pip has nothing set"),
        "{told}"
    );
}
