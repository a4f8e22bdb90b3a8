//! A project of compose: the repository's `compose.yaml`, with networks of its own and an outside
//! world beside it. All of it is removed when dropped.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::egret::BINARY;

/// Names that the outside world serves; those in `REFUSED` by another machine of it.
const SERVED: [&str; 4] = ["example.com", "allowed.example", "packages.example", "git.example"];
const REFUSED: [&str; 3] = ["refused.example", "example.org", "elsewhere.example"];
/// What the sandbox may reach where a test says nothing else.
pub const POLICY: &str = "[[policy.sandbox.allow]]\n\
    domains = [\"allowed.example\", \"packages.example\", \"git.example\"]\n";
/// Beside what is in the repository. A string in braces is a value of this project.
const WORLD: &str = r#"
services:
  egret:
    dns: "{outside}.3"
    healthcheck:
      interval: 1s
      retries: 60
    depends_on:
      site: {condition: service_healthy}
      elsewhere: {condition: service_healthy}
  sandbox:
    volumes: ["{folder}/tls/certs:/tls:ro", "{tests}:/tests:ro", "{toolchain}:/toolchain:ro"]
    stop_grace_period: 1s
    environment:
      CURL_CA_BUNDLE: /tls/ca.crt
      SSL_CERT_FILE: /tls/ca.crt
      GIT_SSL_CAINFO: /tls/ca.crt
      PIP_CERT: /tls/ca.crt
      NODE_EXTRA_CA_CERTS: /tls/ca.crt
      CARGO_HTTP_CAINFO: /tls/ca.crt
  site: &site
    image: "{sandbox_image}"
    init: true
    command: ["python3", "/tests/site.py", {names}]
    volumes: ["{folder}/tls/certs:/tls:ro", "{tests}:/tests:ro"]
    healthcheck:
      test: ["CMD", "test", "-e", "/tmp/ready"]
      interval: 1s
      retries: 60
    networks:
      outside: {ipv4_address: "{outside}.3"}
  elsewhere:
    <<: *site
    networks:
      outside: {ipv4_address: "{outside}.4"}
networks:
  outside:
    driver_opts: {com.docker.network.bridge.name: "{bridge}"}
    ipam: {config: [{subnet: "{outside}.0/24"}]}
"#;

/// The images of egret and of the sandbox; nothing where the tests are to be skipped.
pub fn images() -> Option<[String; 2]> {
    let found = ["EGRET_IMAGE", "SANDBOX_IMAGE"].map(|name| std::env::var(name).ok());
    if let [Some(egret), Some(sandbox)] = found {
        return Some([egret, sandbox]);
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "EGRET_IMAGE or SANDBOX_IMAGE names no image");
    println!("skipped: EGRET_IMAGE or SANDBOX_IMAGE names no image");
    None
}

pub struct Project {
    name: String,
    images: [String; 2],
    folder: TempDir,
    /// The first three numbers of both networks.
    inside: String,
    outside: String,
    proxy_url: Option<String>,
}

impl Project {
    /// The files of a project, with these rules and this file of compose's on top of the others.
    pub fn prepare(images: [String; 2], rules: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let number = unique();
        let [high, low] = [number / 250 % 250, number % 250];
        let project = Self {
            name: format!("egret-{}-{number}", std::process::id()),
            images,
            folder,
            inside: format!("10.{high}.{low}"),
            // Public to egret, and of a block in which this machine has no business meanwhile.
            outside: format!("25.{high}.{low}"),
            proxy_url: None,
        };
        project.write_files(rules, more);
        project
    }

    /// The same, started.
    pub fn start(images: [String; 2], rules: &str, more: &str) -> Self {
        let project = Self::prepare(images, rules, more);
        project.up(&[]);
        project
    }

    fn write_files(&self, rules: &str, more: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::copy(root.join("compose.yaml"), self.place("compose.yaml")).unwrap();
        // What a reader of the documents does who wants another network inside, and other rules.
        let policy = fs::read_to_string(root.join("compose/egret.toml")).unwrap();
        assert!(policy.contains("172.16.97"));
        let policy = policy.replace("172.16.97", &self.inside);
        fs::create_dir(self.place("compose")).unwrap();
        fs::write(self.place("compose/egret.toml"), format!("{policy}\n{rules}")).unwrap();
        fs::write(self.place("world.yaml"), self.fill(WORLD)).unwrap();
        if !more.is_empty() {
            fs::write(self.place("more.yaml"), self.fill(more)).unwrap();
        }
        fs::create_dir(self.place("tls")).unwrap();
        self.certify(&["cert", "ca"]);
        let names = SERVED.iter().chain(&REFUSED).flat_map(|name| ["--name", name]);
        self.certify(&[&["cert", "server"], names.collect::<Vec<_>>().as_slice()].concat());
    }

    fn certify(&self, arguments: &[&str]) {
        let output = Command::new(BINARY).args(arguments).current_dir(self.place("tls")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    fn fill(&self, text: &str) -> String {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compose");
        let toolchain = Path::new(env!("CARGO")).parent().unwrap().parent().unwrap();
        let known = |names: &[&str], last: &str| -> Vec<String> {
            names.iter().map(|name| format!("\"{name}={}.{last}\"", self.outside)).collect()
        };
        let names = [known(&SERVED, "3"), known(&REFUSED, "4")].concat().join(", ");
        [
            ("{names}", names.as_str()),
            ("{inside}", &self.inside),
            ("{outside}", &self.outside),
            ("{bridge}", &self.bridge()),
            ("{folder}", self.folder.path().to_str().unwrap()),
            ("{tests}", tests.to_str().unwrap()),
            ("{toolchain}", toolchain.to_str().unwrap()),
            ("{sandbox_image}", &self.images[1]),
        ]
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// Says how the sandbox is to be told of egret, from the next start on.
    pub fn set_proxy_url(&mut self, url: String) {
        self.proxy_url = Some(url);
    }

    pub fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An address inside: 1 would be this machine's, 2 is egret's.
    pub fn inside(&self, last: u8) -> Ipv4Addr {
        format!("{}.{last}", self.inside).parse().unwrap()
    }

    /// An address outside: 1 is this machine's, 3 the site's, 4 that of elsewhere.
    pub fn outside(&self, last: u8) -> Ipv4Addr {
        format!("{}.{last}", self.outside).parse().unwrap()
    }

    /// This machine's interface on the outside network.
    pub fn bridge(&self) -> String {
        format!("eo-{}", self.outside.replace('.', "-"))
    }

    /// A command in the folder of the project, with what tells compose of it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // Compose 1.29 takes no file in which there is nothing.
        let more = if self.place("more.yaml").exists() { ":more.yaml" } else { "" };
        command
            .current_dir(self.folder.path())
            .env("COMPOSE_PROJECT_NAME", &self.name)
            .env("COMPOSE_FILE", format!("compose.yaml:world.yaml{more}"))
            .env("EGRET_INSIDE", &self.inside)
            .env("EGRET_IMAGE", &self.images[0])
            .env("SANDBOX_IMAGE", &self.images[1]);
        if let Some(url) = &self.proxy_url {
            command.env("SANDBOX_PROXY", url);
        }
        command
    }

    #[track_caller]
    pub fn compose(&self, arguments: &[&str]) -> String {
        success(self.command("docker-compose").args(arguments).output().unwrap(), arguments)
    }

    pub fn up(&self, more: &[&str]) {
        self.compose(&[&["up", "--detach"], more].concat());
    }

    /// The container of a service, the first one where it has several.
    pub fn container(&self, service: &str) -> String {
        self.containers(service).swap_remove(0)
    }

    /// By the engine, which takes a tenth of the time that compose takes to say it.
    pub fn containers(&self, service: &str) -> Vec<String> {
        let project = format!("label=com.docker.compose.project={}", self.name);
        let service = format!("label=com.docker.compose.service={service}");
        let format = "--format={{.Names}} {{.ID}}";
        let listed =
            docker(&["ps", "--all", "--no-trunc", format, "--filter", &project, "--filter", &service]);
        let mut found: Vec<_> = listed.lines().map(|line| line.split_once(' ').unwrap()).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id.to_owned()).collect()
    }

    /// The engine's name of a network of this project.
    pub fn network(&self, name: &str) -> String {
        format!("{}_{name}", self.name)
    }

    pub fn sandbox_image(&self) -> &str {
        &self.images[1]
    }

    /// The address of a container on a network of this project.
    pub fn address(&self, container: &str, network: &str) -> String {
        let network = self.network(network);
        docker(&[
            "inspect",
            "--format",
            &format!("{{{{(index .NetworkSettings.Networks {network:?}).IPAddress}}}}"),
            container,
        ])
    }

    /// Copies a file out of one container, and into others.
    pub fn copy(&self, from: (&str, &str), to: &[&str], place: &str) {
        let here = self.place("copied");
        let here = here.to_str().unwrap();
        docker(&["cp", &format!("{}:{}", from.0, from.1), here]);
        for container in to {
            docker(&["cp", here, &format!("{container}:{place}")]);
        }
    }

    /// What a shell in a container prints and says, and whether it succeeded.
    pub fn shell_in(&self, container: &str, script: &str) -> (bool, String) {
        let script = format!("exec 2>&1; {script}");
        let output = Command::new("docker").args(["exec", container, "sh", "-c", &script]).output().unwrap();
        (output.status.success(), said(&output.stdout))
    }

    /// The same in the sandbox.
    pub fn shell(&self, script: &str) -> (bool, String) {
        self.shell_in(&self.container("sandbox"), script)
    }

    /// All records of the audit file, from the volume that has it.
    pub fn audit(&self) -> Vec<Value> {
        let copy = self.place("audit.copy");
        let from = format!("{}:/var/lib/egret/audit.ndjson", self.container("egret"));
        docker(&["cp", &from, copy.to_str().unwrap()]);
        let text = fs::read_to_string(copy).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = self.command("docker-compose").args(["logs", "--no-color", "--tail=40"]).output();
            let text = logs.map_or_else(|error| error.to_string(), |output| said(&output.stdout));
            println!("--- the containers' logs\n{text}---");
        }
        let down = ["down", "--volumes", "--remove-orphans", "--timeout=1"];
        let _ = self.command("docker-compose").args(down).output();
    }
}

#[track_caller]
pub fn docker(arguments: &[&str]) -> String {
    success(Command::new("docker").args(arguments).output().expect("`docker` runs"), arguments)
}

#[track_caller]
pub fn success(output: Output, what: &[&str]) -> String {
    assert!(output.status.success(), "{what:?}: {}{}", said(&output.stdout), said(&output.stderr));
    said(&output.stdout).trim_end().to_owned()
}

fn said(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// A number that no other project has, of this run or of another that may be under way.
fn unique() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let began = now.subsec_micros() + std::process::id();
    (began + 7919 * COUNT.fetch_add(1, Ordering::SeqCst)) % 62_500
}
