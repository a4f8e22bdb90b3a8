//! Two hosts and what is not meant to be reached, behind a parent proxy that leads to them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;

use crate::site::{self, Site};
use crate::support::egret::{BINARY, Egret};
use crate::{tls, tool};

/// Where indexes are.
pub const INDEX: &str = "index.corp.example";
/// Where their files are.
pub const FILES: &str = "files.corp.example";
/// Serves the same as `INDEX`, and nobody has asked for it.
pub const OTHER: &str = "other.corp.example";
/// The names and their addresses, behind each of which is the folder of that name.
const HOSTS: [(&str, &str); 3] = [(INDEX, "203.0.114.7"), (FILES, "203.0.114.8"), (OTHER, "203.0.114.9")];

/// What passwords and tokens are made of here.
pub const SECRET: &str = "zqxjkv";

pub struct World {
    folder: TempDir,
    parent: SocketAddr,
    /// The sites, with the name that each is reached by.
    sites: Vec<(&'static str, Site)>,
    /// The places that the parent was asked for.
    visited: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (ca, config) = tls::authority(&[INDEX, FILES, OTHER]);
        std::fs::write(folder.path().join("ca.pem"), ca).unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        let (mut ways, mut sites) = (Vec::new(), Vec::new());
        for (name, address) in HOSTS {
            let root = folder.path().join(if name == OTHER { INDEX } else { name });
            std::fs::create_dir_all(&root).unwrap();
            let handler = Arc::new(site::files(&root));
            let plain = Site::start(handler.clone(), None);
            let secure = Site::start(handler, Some(Arc::clone(&config)));
            ways.push((format!("{address}:80"), plain.address));
            ways.push((format!("{address}:443"), secure.address));
            sites.extend([(name, plain), (name, secure)]);
        }
        let visited = Arc::default();
        let parent = parent(ways, Arc::clone(&visited));
        Self { folder, parent, sites, visited }
    }

    /// The folder that a host serves.
    pub fn web(&self, host: &str) -> PathBuf {
        self.folder.path().join(host)
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub fn write(&self, host: &str, path: &str, octets: impl AsRef<[u8]>) {
        let file = self.web(host).join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, octets).unwrap();
    }

    /// A configuration whose one sandbox is under a policy that is written so.
    pub fn config(&self, policy: &str) -> String {
        let hosts: Vec<_> = HOSTS.iter().map(|(name, at)| format!("\"{name}\" = [\"{at}\"]")).collect();
        format!(
            "[dns]\nservers = [\"127.0.0.1:9\"]\ntimeout = \"1s\"\nhosts = {{ {} }}\n\n\
             [upstream]\nproxy = \"http://{}\"\n\n\
             [[sandbox]]\nid = \"box\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"main\"\n\n\
             [policy.main]\n{policy}\n",
            hosts.join(", "),
            self.parent
        )
    }

    /// A client of this egret.
    pub fn client(&self, egret: &Egret, program: &Path) -> Command {
        let mut command = tool::command(program, &self.home());
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            command.env(name, format!("http://{}", egret.proxy));
        }
        command
    }

    /// The paths that a host was asked for.
    pub fn asked(&self, host: &str) -> Vec<String> {
        let of_host = self.sites.iter().filter(|(name, _)| *name == host);
        of_host.flat_map(|(_, site)| site.served()).map(|served| served.request.path().to_owned()).collect()
    }

    /// Was this host reached?
    pub fn reached(&self, host: &str) -> bool {
        let (_, address) = HOSTS.iter().find(|(name, _)| *name == host).unwrap();
        self.visited.lock().unwrap().iter().any(|place| place.starts_with(&format!("{address}:")))
    }

    /// What was asked for that is none of the hosts.
    pub fn strays(&self) -> Vec<String> {
        let known = |place: &&String| HOSTS.iter().any(|(_, at)| place.starts_with(&format!("{at}:")));
        self.visited.lock().unwrap().iter().filter(|place| !known(place)).cloned().collect()
    }
}

/// Runs egret beside a running one.
pub fn run(egret: &Egret, args: &[&str], env: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(args).current_dir(egret.dir()).envs(env.iter().copied()).output().unwrap()
}

pub fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// A proxy that tunnels to where each place really is, and refuses all others.
fn parent(ways: Vec<(String, SocketAddr)>, visited: Arc<Mutex<Vec<String>>>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let ways = Arc::new(ways);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (ways, visited) = (Arc::clone(&ways), Arc::clone(&visited));
            // An error is the end of the connection, which both sides see by themselves.
            thread::spawn(move || tunnel(stream, &ways, &visited));
        }
    });
    address
}

fn tunnel(
    mut client: TcpStream,
    ways: &[(String, SocketAddr)],
    visited: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut head = Vec::new();
    let mut octet = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut octet)?;
        head.push(octet[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let place = head.split(' ').nth(1).unwrap_or_default().to_owned();
    visited.lock().unwrap().push(place.clone());
    let Some((_, to)) = ways.iter().find(|(known, _)| *known == place) else {
        return client.write_all(b"HTTP/1.1 502 Nobody There\r\nContent-Length: 0\r\n\r\n");
    };
    let mut origin = TcpStream::connect(to)?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (mut from, mut into) = (client.try_clone()?, origin.try_clone()?);
    let up = thread::spawn(move || {
        let _ = io::copy(&mut from, &mut into);
        let _ = into.shutdown(std::net::Shutdown::Write);
    });
    let _ = io::copy(&mut origin, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Write);
    let _ = up.join();
    Ok(())
}
