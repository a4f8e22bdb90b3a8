//! Sockets in the file system whose owners would work for the command with a network of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::site::{Site, told, users};

const ASK: &str =
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(9))";

#[test]
fn an_engine_is_closed_to_the_command_and_stays_open_outside() {
    let site = Site::begin();
    let (folder, asked) = (site.folder.path().join("engine"), Arc::new(AtomicUsize::new(0)));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let place = folder.join("docker.sock");
    let (listener, count) = (UnixListener::bind(&place).unwrap(), Arc::clone(&asked));
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = std::io::Write::write_all(&mut client, b"engine");
        }
    });
    let path = place.display().to_string();
    let ask = || told(Command::new("python3").args(["-c", ASK, &path]).output().unwrap());
    assert_eq!(ask().stdout, "b'engine'\n");
    let site_folder = site.folder.path().display();
    let tries = [
        format!("python3 -c '{ASK}' {path}"),
        format!("umount {path}"),
        format!("rm -f {path}"),
        format!("mv {path} {path}.moved"),
        format!("ln {path} {path}.linked && python3 -c '{ASK}' {path}.linked"),
        format!(
            "mv {0} {0}-moved && python3 -c '{ASK}' {0}-moved/docker.sock; r=$?; mv {0}-moved {0}; test $r = 0",
            folder.display()
        ),
        format!("unshare -Urm sh -c \"umount {path}\""),
        format!(
            "unshare -Urm sh -c \"mount --bind {site_folder} /mnt && python3 -c '{ASK}' /mnt/engine/docker.sock\""
        ),
        format!(
            "unshare -Urm sh -c \"mount --rbind {site_folder} /mnt && python3 -c '{ASK}' /mnt/engine/docker.sock\""
        ),
        format!("python3 -c '{ASK}' /proc/1/root{path}"),
        format!("python3 -c '{ASK}' /proc/$PPID/root{path}"),
    ];
    let script: String = tries.iter().map(|each| format!("({each}) >/dev/null 2>&1; echo $?;")).collect();
    for user in users() {
        let before = asked.load(Ordering::SeqCst);
        let mut run = site.run(user, &[]);
        let run = told(
            run.args(["sh", "-c", &script]).env("DOCKER_HOST", format!("unix://{path}")).output().unwrap(),
        );
        let codes: Vec<_> = run.stdout.lines().collect();
        assert!(codes.len() == tries.len() && codes.iter().all(|code| *code != "0"), "{user:?}: {run:?}");
        assert_eq!(asked.load(Ordering::SeqCst), before, "{user:?}");
        assert!(!run.stderr.contains("warning"), "{run:?}");
        assert_eq!(ask().stdout, "b'engine'\n");
    }
}
