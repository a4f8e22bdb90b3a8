//! Each client: a run that is observed, the rules that it taught, the same run under them, and what
//! they refuse.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::registries::{self, DEB};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::tool::{self, Outcome};
use crate::world::{FILES, INDEX, OTHER, SECRET, World, run, text};

/// A client with an index on this host, in a home that has nothing of earlier runs.
type Run<'a> = &'a dyn Fn(&Egret, &str) -> Outcome;

/// Observes a run, learns, and holds the same run to what was learned. `ports` are those of the index
/// and of the files.
fn observe_learn_enforce(world: &World, ports: [u16; 2], client: Run<'_>, arrived: &dyn Fn() -> bool) {
    let egret = Egret::with(world.config("mode = \"observe\"")).start();
    let observed = client(&egret, INDEX);
    assert!(observed.status.success() && arrived(), "{observed:?}\n{}", egret.log());
    assert!(world.reached(INDEX) && world.reached(FILES));

    std::fs::create_dir(egret.dir().join("rules")).unwrap();
    let learned = run(&egret, &["learn", "--config", "egret.toml", "--write", "rules/learned.toml"], &[]);
    assert!(learned.status.success(), "{learned:?}");
    let rules = std::fs::read_to_string(egret.dir().join("rules/learned.toml")).unwrap();
    for (host, port) in [(INDEX, ports[0]), (FILES, ports[1])] {
        assert!(rules.contains(&format!("domains = [\"{host}\"]\nports = [{port}]\n")), "{host}: {rules}");
    }
    assert_eq!(rules.matches("[[allow]]").count(), 2, "{rules}");

    egret.configure(&world.config("rules = [\"learned\"]"));
    assert_eq!(egret.reload().status, 200, "{}", egret.log());
    let enforced = client(&egret, INDEX);
    assert!(enforced.status.success() && arrived(), "{enforced:?}\n{}", egret.log());
    let others = egret.events("decision").into_iter().filter(|record| record["verdict"] == "deny");
    assert_eq!(others.count(), 0, "{}", egret.log());

    // Everything else is refused: another host for the client, and any other place.
    let refused = client(&egret, OTHER);
    assert!(!refused.status.success() || !arrived(), "{refused:?}");
    let denials = |host: &str| {
        let decisions = egret.events("decision").into_iter();
        decisions.filter(|record| record["host"] == host && record["verdict"] == "deny").count()
    };
    assert!(denials(OTHER) > 0, "{refused:?}");
    for (host, port) in
        [(OTHER, 443), (INDEX, 22), (FILES, 8443), ("203.0.114.7", ports[0]), ("never.example", 443)]
    {
        let mut client = Client::connect(egret.proxy);
        client.send(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"));
        assert_eq!(client.response("CONNECT").status, 403, "{host}:{port}");
    }
    assert!(!world.reached(OTHER) && world.strays().is_empty(), "{:?}", world.strays());

    let audit = std::fs::read_to_string(egret.audit_file()).unwrap();
    for (what, text) in [
        ("the audit", &audit),
        ("the rules", &rules),
        ("the log", &egret.log()),
        ("learn", &text(&learned.stderr)),
    ] {
        assert!(!text.contains(SECRET), "{what} has a credential: {text}");
    }
}

/// A folder that is there and empty.
fn fresh(path: PathBuf) -> PathBuf {
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Python, if it has pip.
fn python(world: &World) -> Option<PathBuf> {
    let program = tool::find("python3")?;
    let mut probe = tool::command(&program, &world.home());
    probe.args(["-m", "pip", "--version"]);
    if !tool::run(probe).status.success() {
        tool::missing("pip");
        return None;
    }
    Some(program)
}

#[test]
fn pip() {
    let world = World::start();
    let Some(program) = python(&world) else { return };
    registries::python(&world, &program);
    let out = world.home().join("out");
    let install = |egret: &Egret, host: &str| {
        fresh(out.clone());
        let mut command = world.client(egret, &program);
        command.env("PIP_CONFIG_FILE", "/dev/null").args(["-m", "pip", "install", "--no-cache-dir"]);
        command
            .args(["--disable-pip-version-check", "--no-deps", "--retries=0"])
            .arg("--cert")
            .arg(world.ca());
        command.args(["--index-url", &format!("https://user:{SECRET}@{host}/simple/")]);
        command.arg("--target").arg(&out).arg("warbler-of-egret");
        tool::run(command)
    };
    observe_learn_enforce(&world, [443, 443], &install, &|| out.join("warbler_of_egret.py").is_file());
}

#[test]
fn cargo() {
    let world = World::start();
    registries::crates(&world);
    let home = world.home();
    let fetch = |egret: &Egret, host: &str| {
        let project = fresh(home.join("project"));
        fresh(home.join("caches"));
        std::fs::create_dir_all(project.join("src")).unwrap();
        std::fs::write(project.join("src/lib.rs"), "").unwrap();
        let manifest = "[package]\nname = \"heron\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\ndunlin = { version = \"1\", registry = \"corp\" }\n";
        std::fs::write(project.join("Cargo.toml"), manifest).unwrap();
        let program = Path::new(env!("CARGO"));
        let mut command: Command = tool::command(program, &project);
        command.env("RUSTC", program.with_file_name("rustc")).env("CARGO_HOME", home.join("caches"));
        command.env("CARGO_REGISTRIES_CORP_INDEX", format!("sparse+https://{host}/crates/"));
        command.env("CARGO_REGISTRIES_CORP_TOKEN", SECRET).env("CARGO_NET_RETRY", "0");
        command.env("CARGO_HTTP_PROXY", format!("http://{}", egret.proxy));
        command.env("CARGO_HTTP_CAINFO", world.ca()).arg("fetch");
        tool::run(command)
    };
    let arrived =
        || home.join("caches/registry/src").is_dir() && registries::unpacked(&home.join("caches")).is_file();
    observe_learn_enforce(&world, [443, 443], &fetch, &arrived);
}

#[test]
fn npm() {
    let world = World::start();
    let Some(program) = tool::find("npm") else { return };
    registries::packages(&world);
    let project = world.home().join("project");
    let install = |egret: &Egret, host: &str| {
        fresh(project.clone());
        fresh(world.home().join(".npm"));
        let token = format!("//{host}/npm/:_authToken={SECRET}\n");
        registries::npm_project(&world, &project, host, &token);
        let mut command = world.client(egret, &program);
        command.current_dir(&project).args(["install", "--ignore-scripts"]);
        tool::run(command)
    };
    observe_learn_enforce(&world, [443, 443], &install, &|| {
        project.join("node_modules/wagtail/index.js").is_file()
    });
}

#[test]
fn apt() {
    let world = World::start();
    let Some(program) = tool::find("apt-get") else { return };
    registries::debian(&world);
    let root = world.home().join("root");
    let download = |egret: &Egret, host: &str| {
        fresh(root.clone());
        for folder in [
            "etc/apt.conf.d",
            "etc/preferences.d",
            "etc/auth.conf.d",
            "state/lists/partial",
            "cache/archives/partial",
            "log",
        ] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("status"), "").unwrap();
        let source = format!("deb [trusted=yes] mirror+http://{host}/mirrors.txt ./\n");
        std::fs::write(root.join("etc/sources.list"), source).unwrap();
        let login = format!(
            "machine http://{host} login user password {SECRET}\nmachine http://{FILES} login user password {SECRET}\n"
        );
        std::fs::write(root.join("etc/auth.conf"), login).unwrap();
        let (place, proxy) = (root.display(), egret.proxy);
        let settings = format!(
            "Dir \"{place}\";\nDir::Etc \"{place}/etc\";\nDir::State \"{place}/state\";\nDir::State::status \"{place}/status\";\n\
             Dir::Cache \"{place}/cache\";\nDir::Log \"{place}/log\";\nAPT::Architecture \"amd64\";\nAPT::Sandbox::User \"\";\n\
             APT::Update::Error-Mode \"any\";\nAcquire::Retries \"0\";\nAcquire::Languages \"none\";\n\
             Acquire::http::Proxy \"http://{proxy}\";\n"
        );
        std::fs::write(root.join("apt.conf"), settings).unwrap();
        let apt = |arguments: &[&str]| {
            let mut command = tool::command(&program, &root);
            command.env("APT_CONFIG", root.join("apt.conf")).args(arguments);
            tool::run(command)
        };
        let updated = apt(&["update"]);
        if updated.status.success() { apt(&["download", "bittern"]) } else { updated }
    };
    observe_learn_enforce(&world, [80, 80], &download, &|| root.join(DEB).is_file());
}
