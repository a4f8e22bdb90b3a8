//! What holds for all settings: no credential gets out, and what is written loads.

use egret_policy::SourceFile;
use proptest::prelude::*;

use super::*;

/// What passwords, tokens and their like are made of here. It occurs nowhere else.
const MARK: &str = "zqxjkv";

/// A credential, with whatever people put into one.
fn secret() -> impl Strategy<Value = String> {
    let odd = "[a-z0-9:/?#@%;=&+ $\"'<>{}\\[\\]\\\\.,!-]{0,6}";
    (odd, odd).prop_map(|(before, behind)| format!("{before}{MARK}{behind}"))
}

/// The same without what ends a URL in the middle of a line: it would be a host to the client too.
fn secret_in_url() -> impl Strategy<Value = String> {
    let odd = "[a-z0-9:/?@%=+!.-]{0,6}";
    (odd, odd).prop_map(|(before, behind)| format!("{before}{MARK}{behind}"))
}

/// A URL with credentials somewhere.
fn url() -> impl Strategy<Value = String> {
    let (host, secret) = ("[a-z]{1,8}\\.(example|corp\\.example)(:[0-9]{1,5})?", secret_in_url());
    (host, secret, 0..6, prop::bool::ANY).prop_map(|(host, secret, kind, secure)| {
        let scheme = if secure { "https" } else { "http" };
        match kind {
            0 => format!("{scheme}://{secret}@{host}/path/"),
            1 => format!("{scheme}://user:{secret}@{host}/path/"),
            2 => format!("{scheme}://{host}/path?token={secret}"),
            3 => format!("{scheme}://{host}/{secret}/simple"),
            4 => format!("{scheme}://{host}/path#{secret}"),
            _ => format!("{scheme}://{secret}:x@{host}"),
        }
    })
}

/// Every client's settings with these URLs and secrets in them.
fn files(urls: &[String], secret: &str) -> Vec<(&'static str, String)> {
    let [a, b, c] = urls else { return Vec::new() };
    let json = |text: &str| serde_json::to_string(text).unwrap();
    vec![
        (
            "~/.npmrc",
            format!(
                "registry={a}\n@x:registry=\"{b}\"\n//h.example/:_authToken={secret}\n_password={secret}\n{secret}\n"
            ),
        ),
        (
            "/etc/pip.conf",
            format!("[global]\nindex-url = {a}\nextra-index-url =\n  {b}\n  {c}\nproxy = {secret}\n"),
        ),
        (
            "~/.config/uv/uv.toml",
            format!("index-url = {}\n[[index]]\nurl = {}\nname = {}\n", json(a), json(b), json(secret)),
        ),
        (
            "~/.cargo/config.toml",
            format!(
                "[registries.x]\nindex = {}\ntoken = {}\n[registries.y]\nindex = {}\n",
                json(&format!("sparse+{a}")),
                json(secret),
                json(b)
            ),
        ),
        ("/etc/apt/sources.list", format!("deb {a} stable main\ndeb [x={secret}] {b} stable main\n")),
        (
            "/etc/apt/sources.list.d/x.sources",
            format!("Types: deb\nURIs: {a} {b}\nSuites: stable\nSigned-By: {secret}\n"),
        ),
        (
            "~/.config/go/env",
            format!("GOPROXY={a},{b}\nGOSUMDB=sum.example+{}\nGOAUTH={secret}\n", secret.replace(' ', "")),
        ),
        (
            "~/.m2/settings.xml",
            format!(
                "<settings><servers><server><password>{secret}</password></server></servers><mirrors><mirror><url>{a}</url></mirror></mirrors></settings>"
            ),
        ),
        (
            "~/.docker/config.json",
            format!(
                "{{\"auths\": {{{}: {{\"auth\": {}}}}}, \"HttpHeaders\": {{\"X\": {}}}}}",
                json(a),
                json(secret),
                json(secret)
            ),
        ),
        (
            "/etc/docker/daemon.json",
            format!("{{\"registry-mirrors\": [{}], \"insecure-registries\": [{}]}}", json(b), json(c)),
        ),
        (
            "~/.config/containers/registries.conf",
            format!(
                "unqualified-search-registries = [{}]\n[[registry]]\nprefix = {}\nlocation = {}\n[[registry.mirror]]\nlocation = {}\n",
                json(a),
                json(secret),
                json(b),
                json(c)
            ),
        ),
        (
            "~/.config/containers/auth.json",
            format!("{{\"auths\": {{{}: {{\"auth\": {}}}}}}}", json(a), json(secret)),
        ),
    ]
}

/// All that can be shown of what was read.
fn shown(setup: &Setup, client: Client) -> String {
    match setup.read(client) {
        Err(faults) => faults.iter().map(|fault| format!("{fault}\n")).collect(),
        Ok(findings) => {
            let report = Report::new(&findings, &Answers::default(), &[client]);
            let text = report.to_rule_set();
            let loaded = crate::learn::Rules::read(&SourceFile::new("r.toml", text.clone()));
            assert!(loaded.is_ok(), "{text}");
            let lines: String = report.rules.iter().map(Rule::to_line).collect();
            format!("{text}{lines}{}{findings:?}", serde_json::to_string(&report).unwrap())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_credential_gets_out(urls in prop::collection::vec(url(), 3), secret in secret(), cut in 0..400_usize) {
        let written = files(&urls, &secret);
        let texts: Vec<_> = written.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let mut whole = setup(&texts);
        for (name, url) in [("PIP_EXTRA_INDEX_URL", 0), ("UV_INDEX", 1), ("npm_config_registry", 2), ("GOPRIVATE", 0)] {
            whole.machine.env.insert(name.to_owned(), urls[url].clone());
        }
        for client in Client::ALL {
            let shown = shown(&whole, client);
            prop_assert!(!shown.contains(MARK), "{client:?}: {shown}\n{urls:?} {secret:?}");
        }
        // Files that end in the middle of something.
        for (path, text) in &written {
            let cut: String = text.chars().take(cut).collect();
            // A URL that is cut off may end where its host would.
            let cut = cut.rfind(char::is_whitespace).map_or("", |end| &cut[..end]);
            whole.write(path, cut.as_bytes());
        }
        for client in Client::ALL {
            let shown = shown(&whole, client);
            prop_assert!(!shown.contains(MARK), "{client:?}: {shown}\n{urls:?} {secret:?}");
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\\n\\t]{0,200}") {
        for path in ["~/.npmrc", "/etc/pip.conf", "~/.config/uv/uv.toml", "~/.cargo/config.toml", "/etc/apt/sources.list",
            "/etc/apt/sources.list.d/x.sources", "~/.config/go/env", "~/.m2/settings.xml", "~/.docker/config.json"] {
            let setup = setup(&[(path, &text)]);
            for client in Client::ALL {
                let _ = shown(&setup, client);
            }
        }
    }

    #[test]
    fn a_place_is_what_clients_take_it_for(url in url()) {
        if let Ok(place) = Place::parse(&url) {
            let same = url::Url::parse(&url).unwrap();
            prop_assert_eq!(place.destination().host().to_string(), same.host_str().unwrap_or_default());
            let shown = format!("{} {place:?}", place.origin());
            prop_assert!(!shown.contains(MARK), "{}", shown);
        }
    }
}
