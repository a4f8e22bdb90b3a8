//! Sandboxes that are known by a token instead of their address, as `docs/container.md` sets it up.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use crate::project::{POLICY, Project, docker, images};

#[test]
fn a_token_says_which_sandbox_it_is() {
    let Some(images) = images() else { return };
    let image = images[0].clone();
    let mut project = Project::prepare(images, POLICY, "");
    // A folder in which the image's user may write; on an ordinary machine `--user` is the operator.
    let keys = project.place("keys");
    fs::create_dir(&keys).unwrap();
    chown(&keys, Some(1000), Some(1000)).unwrap();
    let volume = format!("{}:/var/lib/egret", keys.display());
    let egret = |arguments: &[&str]| {
        let run = ["run", "--rm", "--network=none", "--user=1000:1000", "--volume", &volume, &image];
        docker(&[&run, arguments].concat())
    };
    egret(&["token", "keygen"]);
    let public = project.place("compose/token.pub");
    fs::copy(keys.join("certs/token.pub"), &public).unwrap();
    fs::set_permissions(public, fs::Permissions::from_mode(0o644)).unwrap();

    let file = project.place("compose/egret.toml");
    let text = fs::read_to_string(&file).unwrap();
    let with_auth = text.replacen("policy = \"sandbox\"\n", "policy = \"sandbox\"\nauth   = \"token\"\n", 1);
    assert_ne!(text, with_auth);
    // With a token for the control interface too, which the health check has to find.
    let listen =
        with_auth.replacen("[listen]\n", "[listen]\ncontrol_token_file = \"/etc/egret/control\"\n", 1);
    fs::write(project.place("compose/control"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let identity = "\n[identity]\ntoken_keys = [\"/etc/egret/token.pub\"]\n";
    fs::write(file, listen + identity).unwrap();
    let mint = ["token", "mint", "--sandbox=job-7", "--policy=sandbox", "--ttl=1h", "--url=egret:3128"];
    project.set_proxy_url(egret(&mint));
    project.up(&[]);

    let (done, printed) = project.shell("curl -sS https://allowed.example/");
    assert_eq!((done, printed.as_str()), (true, "the page\n"));
    let (_, printed) = project.shell("curl -sS --proxy http://egret:3128 http://allowed.example/");
    assert!(printed.contains("identity_required"), "{printed}");
    let audit = project.audit();
    let decided: Vec<_> = audit.iter().filter(|record| record["event"] == "decision").collect();
    let who = |at: usize| (decided[at]["sandbox"].as_str(), decided[at]["identity"].as_str());
    assert_eq!(decided.len(), 2, "{audit:?}");
    assert_eq!(who(0), (Some("job-7"), Some("token")));
    assert_ne!(who(1).0, Some("job-7"));
}
