//! What each client's files and variables say.

use super::*;

#[track_caller]
fn assert_found(setup: &Setup, client: Client, expected: &[&str], complete: bool) {
    assert_eq!(setup.found(client), (expected.iter().map(ToString::to_string).collect(), complete));
}

#[test]
fn npm_takes_the_nearest_setting_of_each_registry() {
    let files = [
        ("package.json", "{}"),
        (".npmrc", "; project\n@a:registry = \"https://a.corp.example/npm/\"\n"),
        (
            "~/.npmrc",
            "registry=https://first.example/\nregistry = https://npm.example:8443/x/ # mine\n@a:registry=https://no.example\n//npm.example:8443/:_authToken=${NPM_TOKEN}\nemail=a@b.example",
        ),
        (
            "/etc/npmrc",
            "registry=https://never.example/\n@b:registry=http://b.${WHERE}/\n[section]\n@c:registry=https://no.example",
        ),
    ];
    let setup = setup(&files).env("WHERE", "corp.example");
    let expected = [
        "http://b.corp.example:80 /etc/npmrc:2 a scope's registry",
        "https://npm.example:8443 ~/.npmrc:2 registry",
    ];
    let (found, complete) = setup.found(Client::Npm);
    assert!(complete);
    assert!(
        found[0].starts_with("https://a.corp.example:443 ") && found[0].contains("/.npmrc:2 "),
        "{found:?}"
    );
    assert_eq!(found[1..], expected);

    // The environment goes before every file, below the project's root too.
    fs::create_dir(setup.project().join("deep")).unwrap();
    let mut setup = setup.env("NPM_CONFIG_REGISTRY", "https://env.example/");
    setup.machine.project = Some(setup.project().join("deep"));
    let (found, _) = setup.found(Client::Npm);
    assert_eq!(found.len(), 3);
    assert_eq!(found[2], "https://env.example:443 environment registry");

    // A scope's registry alone leaves the default open.
    let other = super::setup(&[("~/.npmrc", "@a:registry=https://a.example/")]);
    assert_found(&other, Client::Npm, &["https://a.example:443 ~/.npmrc:1 a scope's registry"], false);
}

#[test]
fn pip_reads_its_levels_and_its_variables() {
    let files = [
        (
            "/etc/pip.conf",
            "[global]\nindex-url = https://global.example/simple\ntrusted-host = t.example\nfind-links = /srv/wheels\n  https://links.example/x\n",
        ),
        (
            "~/.config/pip/pip.conf",
            "[global]\nindex_url: https://user:pw@user.example/simple\nextra-index-url =\n    http://one.example/simple\n    https://two.example/simple\n[install]\nindex-url=https://install.example/simple\n",
        ),
    ];
    let setup = setup(&files);
    let user = "~/.config/pip/pip.conf";
    let two = [
        format!("http://one.example:80 {user}:3 extra-index-url"),
        format!("https://two.example:443 {user}:3 extra-index-url"),
    ];
    let links = "https://links.example:443 /etc/pip.conf:4 find-links".to_owned();
    let mut expected = two.to_vec();
    expected.push(links.clone());
    expected.push(format!("https://user.example:443 {user}:2 index-url"));
    expected.push(format!("https://install.example:443 {user}:7 index-url"));
    assert_eq!(setup.found(Client::Pip), (expected, true));

    let setup = setup.env("PIP_INDEX_URL", "https://env.example/simple").env("PIP_CONFIG_FILE", "/dev/null");
    assert_found(&setup, Client::Pip, &["https://env.example:443 environment index-url"], true);

    let extra = super::setup(&[("/etc/xdg/pip/pip.conf", "[global]\nextra-index-url=https://x.example/")]);
    assert_found(
        &extra,
        Client::Pip,
        &["https://x.example:443 /etc/xdg/pip/pip.conf:2 extra-index-url"],
        false,
    );
    let none = super::setup(&[("~/.pip/pip.conf", "[global]\nno-index = true\nfind-links = ./wheels")]);
    assert_found(&none, Client::Pip, &[], true);
    let venv = super::setup(&[("venv/pip.conf", "[global]\nindex-url=https://venv.example/")])
        .env("VIRTUAL_ENV", "venv");
    assert_eq!(venv.found(Client::Pip).0.len(), 1);
}

#[test]
fn uv_reads_its_own_file_or_the_projects() {
    let files = [
        ("pyproject.toml", "[project]\nname = \"x\"\n[tool.uv]\nindex-url = \"https://no.example\"\n"),
        (
            "uv.toml",
            "[[index]]\nname = \"corp\"\nurl = \"https://u:p@corp.example/simple\"\ndefault = true\n\n[[index]]\nurl = \"https://flat.example/x\"\nformat = \"flat\"\n\n[pip]\nextra-index-url = [\"https://extra.example/simple\"]\n",
        ),
        (
            "~/.config/uv/uv.toml",
            "find-links = [\"./here\", \"http://links.example/\"]\npython-install-mirror = \"https://py.example/builds\"\n",
        ),
    ];
    let setup = setup(&files).env("UV_INDEX", "a=https://a.example/simple https://b.example/x=y/simple");
    let (found, complete) = setup.found(Client::Uv);
    let hosts: Vec<_> = found.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(
        hosts,
        [
            "https://a.example:443",
            "https://b.example:443",
            "https://corp.example:443",
            "https://flat.example:443",
            "https://extra.example:443",
            "http://links.example:80",
            "https://py.example:443",
        ]
    );
    assert!(complete);
    assert!(found[4].ends_with("/uv.toml:11 extra-index-url"), "{found:?}");
    let project = super::setup(&[("pyproject.toml", "[tool.uv]\nextra-index-url = \"https://x.example/\"")]);
    let (found, complete) = project.found(Client::Uv);
    assert_eq!((found.len(), complete), (1, false));
    let other = super::setup(&[("pyproject.toml", "[tool.other]\nindex-url = \"https://x.example/\"")]);
    assert_found(&other, Client::Uv, &[], false);
}

#[test]
fn cargo_follows_replacements_to_their_end() {
    let files = [
        (
            "~/.cargo/config.toml",
            "[source.builtin]\nreplace-with = \"mirror\"\n\n[source.mirror]\nreplace-with = \"near\"\nregistry = \"sparse+https://mirror.example/index/\"\n\n[source.near]\nregistry = \"sparse+https://near.example:8443/index/\"\n\n[source.unused]\nregistry = \"https://unused.example/git\"\n\n[registries.old]\nindex = \"sparse+https://mirror.example/index/\"\n[registries.team-one]\nindex = \"sparse+https://team.example/\"\n",
        ),
        (
            ".cargo/config.toml",
            "[registries]\nteam-one = { index = \"sparse+https://project.example/\" }\ngit = { index = \"https://user:pw@git.example/index.git\" }\nssh = { index = \"ssh://git@git.example/index.git\" }\n",
        ),
        ("../.cargo/config", "[registries.above]\nindex = \"registry+http://above.example/\"\n"),
        ("../.cargo/config.toml", "not toml, and not read, as the old name is there"),
    ];
    let setup = setup(&files).env("CARGO_REGISTRIES_FROM_ENV_INDEX", "sparse+https://env.example/");
    let (found, complete) = setup.found(Client::Cargo);
    let hosts: Vec<_> = found.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(
        hosts,
        [
            "http://above.example:80",
            "https://env.example:443",
            "https://git.example:443",
            "https://project.example:443",
            "https://near.example:8443",
        ]
    );
    assert!(complete);
    let notes = setup.notes(Client::Cargo).join("\n");
    assert!(
        notes.contains("another source is used in its place") && notes.contains("neither http"),
        "{notes}"
    );
    let ring = super::setup(&[(
        "~/.cargo/config.toml",
        "[source.a]\nreplace-with=\"b\"\nregistry=\"https://a.example\"\n[source.b]\nreplace-with=\"a\"\nregistry=\"https://b.example\"",
    )]);
    assert_found(&ring, Client::Cargo, &[], false);
}

#[test]
fn cargo_reads_what_its_files_include() {
    let sparse =
        |name: &str, host: &str| format!("[registries.{name}]\nindex = \"sparse+https://{host}.example/\"\n");
    let own = format!(
        "include = [\n  \"first.toml\",\n  {{ path = \"../shared/second.toml\" }},\n  {{ path = \"none.toml\", optional = true }},\n  \"/etc/cargo/all.toml\",\n]\n{}",
        sparse("a", "own")
    );
    let first = sparse("a", "no") + &sparse("b", "no") + &sparse("first", "first");
    let second =
        format!("include = [\"deep/third.toml\"]\n{}{}", sparse("b", "second"), sparse("d", "second-d"));
    let third = sparse("b", "no") + &sparse("c", "third") + &sparse("d", "no");
    let files = [
        (".cargo/config.toml", own.as_str()),
        (".cargo/first.toml", &first),
        ("shared/second.toml", &second),
        ("shared/deep/third.toml", &third),
        ("/etc/cargo/all.toml", &sparse("e", "all")),
        ("~/.cargo/config.toml", &(sparse("c", "no") + &sparse("home", "home"))),
    ];
    let (found, _) = setup(&files).found(Client::Cargo);
    let hosts: Vec<_> = found.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let expected = ["own", "second", "third", "second-d", "all", "first", "home"];
    assert_eq!(hosts, expected.map(|host| format!("https://{host}.example:443")));

    // What cargo refuses is refused, with its line; and what never ends.
    for (text, told) in [
        ("include = [\n\"gone.toml\"]", ":2: it includes a file that is not there"),
        ("\ninclude = [\"x.txt\"]", ":2: `include` takes paths that end in .toml"),
        ("include = [{ optional = true }]", ":1: `include` takes paths that end in .toml"),
        ("include = [7]", ":1: `include` takes paths that end in .toml"),
        (
            "include = [\"config.toml\", \"config.toml\"]",
            ": more than 100 files; do they include each other?",
        ),
    ] {
        let faults = setup(&[(".cargo/config.toml", text)]).read(Client::Cargo).unwrap_err();
        assert!(faults[0].to_string().ends_with(&format!("/.cargo/config.toml{told}")), "{faults:?}");
    }
}

#[test]
fn apt_reads_lines_and_stanzas_and_no_proxies() {
    let files = [
        (
            "/etc/apt/sources.list",
            "# old\ndeb [arch=amd64 signed-by=/k.gpg] https://deb.corp.example/debian stable main # x\ndeb-src http://src.example/debian stable main\ndeb cdrom:[A disk with spaces]/ stable main\ndeb file:/srv/repo ./\ndeb mirror+file:/etc/apt/mirrors.txt stable main\n",
        ),
        (
            "/etc/apt/mirrors.txt",
            "# list\nhttp://m1.example/debian priority:1\n\nhttps://m2.example/debian\n",
        ),
        (
            "/etc/apt/sources.list.d/a.sources",
            "# stanza\nTypes: deb\nURIs: https://one.example/x\n https://two.example/x\nSuites: stable\nComponents: main\n\nTypes: deb\nEnabled: no\nURIs: https://off.example\nSuites: x\n",
        ),
        ("/etc/apt/sources.list.d/b.sources.disabled", "neither\n"),
        (
            "/etc/apt/sources.list.d/c.list",
            "deb mirror+https://list.example/mirrors.txt stable main\ndeb tor+http://onion.example x y\n",
        ),
        ("/etc/apt/apt.conf.d/01proxy", "Acquire::http::Proxy \"http://proxy.example:3142\";\n"),
    ];
    let setup = setup(&files);
    assert_found(
        &setup,
        Client::Apt,
        &[
            "https://deb.corp.example:443 /etc/apt/sources.list:2 a source",
            "http://src.example:80 /etc/apt/sources.list:3 a source",
            "http://m1.example:80 /etc/apt/mirrors.txt:2 a source",
            "https://m2.example:443 /etc/apt/mirrors.txt:4 a source",
            "https://one.example:443 /etc/apt/sources.list.d/a.sources:3 a source",
            "https://two.example:443 /etc/apt/sources.list.d/a.sources:3 a source",
            "https://list.example:443 /etc/apt/sources.list.d/c.list:1 a source",
        ],
        true,
    );
    let findings = setup.read(Client::Apt).unwrap();
    assert_eq!(findings.found[0].ask, Ask::Release("dists/stable/InRelease".to_owned()));
    assert_eq!(findings.found[6].ask, Ask::Mirrors);
    let flat = super::setup(&[("/etc/apt/sources.list", "deb https://flat.example/x ./\n")]);
    assert_eq!(flat.read(Client::Apt).unwrap().found[0].ask, Ask::Release("InRelease".to_owned()));
}

#[test]
fn go_has_proxies_a_database_and_private_hosts() {
    let files = [
        (
            "~/.config/go/env",
            "GOPROXY=https://u:p@proxy.corp.example|https://second.example,direct\nGOPRIVATE=git.corp.example/team,*.wild.example\nGONOSUMDB=x.example\nGOFLAGS=-mod=mod\n",
        ),
        (
            "/usr/local/go/go.env",
            "# defaults\nGOPROXY=https://no.example,direct\nGOSUMDB=sum.example+abc+key https://sums.corp.example/db\n",
        ),
    ];
    let setup = setup(&files);
    let user = "~/.config/go/env";
    assert_found(
        &setup,
        Client::Go,
        &[
            &format!("https://proxy.corp.example:443 {user}:1 GOPROXY"),
            &format!("https://second.example:443 {user}:1 GOPROXY"),
            &format!("https://git.corp.example:443 {user}:2 GOPRIVATE"),
            "https://sums.corp.example:443 /usr/local/go/go.env:3 GOSUMDB",
        ],
        true,
    );
    let off = setup.env("GOSUMDB", "off").env("GOPROXY", "off").env("GONOPROXY", "none");
    assert_found(&off, Client::Go, &[], true);
    let name = super::setup(&[]).env("GOSUMDB", "sum.example+hash+key");
    assert_found(&name, Client::Go, &["https://sum.example:443 environment GOSUMDB"], false);
}

#[test]
fn maven_has_mirrors_and_repositories() {
    let settings = "<?xml version=\"1.0\"?>\n<settings xmlns=\"http://maven.apache.org/SETTINGS/1.2.0\">\n<mirrors>\n<mirror><id>m</id>\n<url>https://u:p@mirror.example/maven</url><mirrorOf>*</mirrorOf></mirror>\n<mirror><url>http://0.0.0.0/</url><blocked>true</blocked></mirror>\n</mirrors>\n<servers><server><password>hidden</password></server></servers>\n<profiles><profile><repositories><repository>\n<url>${env.REPO}/releases</url></repository></repositories>\n<pluginRepositories><pluginRepository><url>https://plugins.example/</url></pluginRepository></pluginRepositories></profile></profiles>\n</settings>\n";
    let pom = "<project><repositories><repository><url>${base}/x</url></repository></repositories>\n<distributionManagement><repository><url>https://deploy.example</url></repository></distributionManagement></project>";
    let setup =
        setup(&[("~/.m2/settings.xml", settings), ("pom.xml", pom)]).env("REPO", "https://repo.example");
    assert_found(
        &setup,
        Client::Maven,
        &[
            "https://mirror.example:443 ~/.m2/settings.xml:5 a mirror",
            "https://repo.example:443 ~/.m2/settings.xml:10 a repository",
            "https://plugins.example:443 ~/.m2/settings.xml:11 a repository",
        ],
        true,
    );
    assert!(setup.notes(Client::Maven)[0].contains("a variable that is not set"));
}

#[test]
fn docker_has_mirrors_and_places_that_were_logged_in_to() {
    let daemon = "{\"registry-mirrors\": [\"https://mirror.example\"], \"insecure-registries\": [\"local.example:5000\", \"10.0.0.0/8\"], \"debug\": true}";
    let config = "{\"auths\": {\"ghost.example:5443\": {\"auth\": \"dTpw\"}, \"https://index.example/v1/\": {}}, \"credHelpers\": {\"cloud.example\": \"x\"}}";
    let setup = setup(&[("/etc/docker/daemon.json", daemon), ("~/.docker/config.json", config)]);
    assert_found(
        &setup,
        Client::Docker,
        &[
            "https://mirror.example:443 /etc/docker/daemon.json registry-mirrors",
            "https://local.example:5000 /etc/docker/daemon.json insecure-registries",
            "http://local.example:5000 /etc/docker/daemon.json insecure-registries",
            "https://ghost.example:5443 ~/.docker/config.json auths",
            "https://index.example:443 ~/.docker/config.json auths",
            "https://cloud.example:443 ~/.docker/config.json credHelpers",
        ],
        false,
    );
    assert!(setup.notes(Client::Docker)[0].contains("a network"));
}

#[test]
fn a_rule_set_names_hosts_ports_and_files() {
    let files = [
        (
            "~/.npmrc",
            "registry=https://one.example/npm\n@a:registry=https://one.example:8443/\n@b:registry=http://10.1.2.3:8081/\n@c:registry=http://localhost:4873/",
        ),
        (
            "/etc/pip.conf",
            "[global]\nindex-url=http://one.example/simple\nextra-index-url=https://metadata.google.internal/",
        ),
    ];
    let report = setup(&files).report(&[Client::Npm, Client::Pip, Client::Cargo]);
    let text = report.to_rule_set();
    let head = "# From what package managers are set to, and what their registries answered.\n";
    assert!(text.starts_with(head), "{text}");
    assert!(
        text.contains(
            "# npm: ~/.npmrc:2 (a scope's registry)\n# npm: ~/.npmrc:1 (registry)\n[[allow]]\ndomains = [\"one.example\"]\nports = [443, 8443]\ntls = \"required\"\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "# pip: /etc/pip.conf:2 (index-url)\n# plain HTTP: whoever is on the way can read and change it\n[[allow]]\ndomains = [\"one.example\"]\nports = [80]\n"
        ),
        "{text}"
    );
    assert_eq!(report.rules.len(), 2, "{text}");
    for line in [
        "10.1.2.3:8081, npm: ~/.npmrc:3 (a scope's registry): an IP address; if it is meant, a rule with addresses = [\"10.1.2.3/32\"], ports = [8081]",
        "#   localhost:4873, npm: ~/.npmrc:4",
        "metadata.google.internal, pip: /etc/pip.conf:3 (extra-index-url): a rule can't be written for it",
        "#   cargo has nothing set, and egret does not know its own: ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let loaded = crate::learn::Rules::read(&egret_policy::SourceFile::new("r.toml", text));
    assert!(loaded.is_ok(), "{loaded:?}");
}

#[test]
fn clients_answer_for_themselves() {
    let mut findings = Findings::default();
    findings.take_answer(Client::Npm, "https://user:pw@npm.example/x/\n");
    let help = "  -i, --index-url <url>       Base URL of the index (default\n                              https://py.example/simple). This should\n";
    findings.take_answer(Client::Pip, help);
    findings.take_answer(Client::Go, "https://go.example,direct\nsum.example\n");
    let found: Vec<_> =
        findings.found.iter().map(|found| format!("{} {}", found.place.origin(), found.origin)).collect();
    assert_eq!(
        found,
        [
            "https://npm.example:443 npm: `npm config get registry` (its own answer)",
            "https://py.example:443 pip: `pip install --help` (its own answer)",
            "https://go.example:443 go: `go env GOPROXY GOSUMDB` (its own answer)",
            "https://sum.example:443 go: `go env GOPROXY GOSUMDB` (its own answer)",
        ]
    );
    assert_eq!(findings.complete, [Client::Npm, Client::Pip, Client::Go]);
    findings.take_answer(Client::Npm, "undefined");
    findings.take_answer(Client::Pip, "no such option");
    assert_eq!(findings.found.len(), 4);
}

#[test]
fn podman_reads_its_main_file_and_those_dropped_in() {
    let main = "unqualified-search-registries = [\"no.example\"]

[[registry]]
prefix = \"docker.io/library\"
location = \"inside.example:5000/hub\"
insecure = true

[[registry.mirror]]
location = \"mirror-0.example/library\"

[[registry.mirror]]
location = \"mirror-1.example/library\"
insecure = true

[[registry]]
location = \"replaced.example\"

[[registry]]
prefix = \"*.wild.example\"

[[registry]]
location = \"blocked.example\"
blocked = true

[[registry.mirror]]
location = \"no.example\"
";
    let dropped = "unqualified-search-registries = [\"quay.corp.example\", \"docker.io\"]
[[registry]]
prefix = \"replaced.example\"
location = \"instead.example\"
[aliases]
\"alpine\" = \"alias.example/library/alpine\"
";
    let files = [
        ("/etc/containers/registries.conf", main),
        ("/etc/containers/registries.conf.d/10-corp.conf", dropped),
        ("/etc/containers/registries.conf.d/old.conf.bak", "neither"),
        ("~/.config/containers/registries.conf.d/own.conf", "[[registry]]\nlocation = \"own.example\"\n"),
        (
            "~/.config/containers/auth.json",
            "{\"auths\": {\"login.example:8443/team\": {\"auth\": \"c2VjcmV0\"}, \"docker.io\": {}}}",
        ),
    ];
    let setup = setup(&files);
    let (etc, drop) = ("/etc/containers/registries.conf", "/etc/containers/registries.conf.d/10-corp.conf");
    let expected = [
        "https://own.example:443 ~/.config/containers/registries.conf.d/own.conf:2 registry".to_owned(),
        format!("https://quay.corp.example:443 {drop}:1 unqualified-search-registries"),
        format!("https://instead.example:443 {drop}:4 registry"),
        format!("http://inside.example:5000 {etc}:5 registry"),
        format!("https://inside.example:5000 {etc}:5 registry"),
        format!("https://mirror-0.example:443 {etc}:9 mirror"),
        format!("http://mirror-1.example:80 {etc}:12 mirror"),
        format!("https://mirror-1.example:443 {etc}:12 mirror"),
        "https://login.example:8443 ~/.config/containers/auth.json auths".to_owned(),
    ];
    assert_eq!(setup.found(Client::Podman), (expected.to_vec(), false));
    let notes = setup.notes(Client::Podman).join("\n");
    for told in ["docker.io is on other hosts", "a pattern", "it is blocked"] {
        assert!(notes.contains(told), "{notes}");
    }

    // A file of the user's own goes in the place of the machine's, and takes its folder along.
    setup.write("~/.config/containers/registries.conf", b"[registries.search]\nregistries = ['old.example']\n[registries.insecure]\nregistries = ['plain.example:5000']\n[registries.block]\nregistries = ['no.example']\n");
    let hosts = |setup: &Setup| {
        let (found, _) = setup.found(Client::Podman);
        found.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let logins = "https://login.example:8443";
    assert_eq!(
        hosts(&setup),
        [
            "https://own.example:443",
            "https://old.example:443",
            "http://plain.example:5000",
            "https://plain.example:5000",
            logins
        ]
    );
    // The environment names another main file, and another one of logins.
    setup.write("other.conf", b"unqualified-search-registries = ['other.example']");
    let setup = setup.env("CONTAINERS_REGISTRIES_CONF", "other.conf").env("REGISTRY_AUTH_FILE", "none.json");
    let expected =
        ["https://own.example:443", "https://quay.corp.example:443", "https://instead.example:443"];
    assert_eq!(hosts(&setup), expected);
}
