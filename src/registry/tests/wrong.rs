//! Files that can't be understood: the file, the line, and nothing of what stands there.

use super::*;

#[test]
fn every_format_has_its_errors_with_their_lines() {
    for (client, path, text, told) in [
        (
            Client::Pip,
            "/etc/pip.conf",
            "[global]\nindex-url\n",
            "/etc/pip.conf:2: neither a [section] nor KEY = VALUE",
        ),
        (Client::Uv, "~/.config/uv/uv.toml", "a = 1\nhidden = \n", "~/.config/uv/uv.toml:2: not TOML"),
        (Client::Cargo, "~/.cargo/config.toml", "[registries\n", "~/.cargo/config.toml:1: not TOML"),
        (
            Client::Apt,
            "/etc/apt/sources.list",
            "\ndebhidden https://x.example a b\n",
            "/etc/apt/sources.list:2: neither deb nor deb-src at the beginning",
        ),
        (
            Client::Apt,
            "/etc/apt/sources.list",
            "deb https://x.example\n",
            "/etc/apt/sources.list:1: a source without its URI or suite",
        ),
        (
            Client::Apt,
            "/etc/apt/sources.list",
            "deb [a=b https://x.example x\n",
            "/etc/apt/sources.list:1: options without their closing bracket",
        ),
        (
            Client::Apt,
            "/etc/apt/sources.list.d/x.sources",
            "Types: deb\nhidden\n",
            "/etc/apt/sources.list.d/x.sources:2: neither FIELD: VALUE nor its continuation",
        ),
        (
            Client::Apt,
            "/etc/apt/sources.list.d/x.sources",
            "\n\nTypes: deb\nURIs: https://x.example\n",
            "/etc/apt/sources.list.d/x.sources:3: a source without Suites",
        ),
        (
            Client::Apt,
            "/etc/apt/sources.list.d/x.sources",
            " hidden\n",
            "/etc/apt/sources.list.d/x.sources:1: an indented line of no field",
        ),
        (
            Client::Maven,
            "~/.m2/settings.xml",
            "<settings>\n<hidden></settings>",
            "~/.m2/settings.xml:2: not XML that settings are written in",
        ),
        (
            Client::Maven,
            "~/.m2/settings.xml",
            "<!DOCTYPE x [<!ENTITY a \"hidden\">]>\n<settings>&a;</settings>",
            "~/.m2/settings.xml:1: not XML that settings are written in",
        ),
        (
            Client::Docker,
            "/etc/docker/daemon.json",
            "{\n\"a\": hidden}",
            "/etc/docker/daemon.json:2: not JSON",
        ),
        (Client::Docker, "~/.docker/config.json", "[]", "~/.docker/config.json:1: not a JSON object"),
        (
            Client::Podman,
            "/etc/containers/registries.conf.d/x.conf",
            "a = 1\n[[registry]\n",
            "/etc/containers/registries.conf.d/x.conf:2: not TOML",
        ),
        (
            Client::Podman,
            "~/.config/containers/auth.json",
            "{\n\"auths\": hidden}",
            "~/.config/containers/auth.json:2: not JSON",
        ),
    ] {
        let faults = setup(&[(path, text)]).read(client).unwrap_err();
        let told_of: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(told_of, [told], "{text:?}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let setup = setup(&[
        ("/etc/pip.conf", "x\n"),
        ("/etc/docker/daemon.json", "x\n"),
        ("~/.npmrc", "registry=https://x.example"),
    ]);
    assert_eq!(read(&setup.machine, &Client::ALL).unwrap_err().len(), 2);
}

#[test]
fn octets_that_are_no_text_and_files_without_end() {
    let bad = setup(&[]);
    bad.write("~/.npmrc", b"a=b\n\n\xff\n");
    assert_eq!(bad.read(Client::Npm).unwrap_err()[0].to_string(), "~/.npmrc:3: not UTF-8");
    let long = setup(&[("~/.npmrc", &"# x\n".repeat(300_000))]);
    assert_eq!(long.read(Client::Npm).unwrap_err()[0].to_string(), "~/.npmrc: longer than 1 MiB");
    // A folder is no file, and says nothing.
    let folder = setup(&[("~/.npmrc/x", "")]);
    assert_eq!(folder.found(Client::Npm), (vec![], false));
    let bom = setup(&[("~/.npmrc", "\u{feff}registry=https://x.example/")]);
    assert_eq!(bom.found(Client::Npm).0.len(), 1);
}

#[test]
fn urls_that_can_be_read_in_two_ways_are_no_places() {
    for (text, flaw) in [
        ("https://user:pa/ss@host.example/", Flaw::Ambiguous),
        ("https://hidden?x@host.example/", Flaw::Ambiguous),
        ("https://hidden#@host.example/", Flaw::Ambiguous),
        ("https://host.example/@scope/", Flaw::Ambiguous),
        ("https:\\\\host.example", Flaw::Malformed),
        ("https://a.example\\@b.example", Flaw::Malformed),
        ("https://a b.example", Flaw::Malformed),
        ("https:///a.example", Flaw::Malformed),
        ("https://", Flaw::Malformed),
        ("https://a.example:99999/", Flaw::Malformed),
        ("https://a..example/", Flaw::Malformed),
        ("https://${HOST}/", Flaw::Variable),
        ("https://%(host)s/", Flaw::Malformed),
        ("ssh://git@a.example/x", Flaw::Scheme),
        ("git@a.example:x", Flaw::File),
        ("file:///srv", Flaw::File),
        ("./here", Flaw::File),
        ("", Flaw::Malformed),
    ] {
        assert_eq!(Place::parse(text).map(|place| place.origin()), Err(flaw), "{text}");
    }
    for (text, origin) in [
        ("HTTPS://U:P@Host.Example./a?b#c", "https://host.example:443"),
        ("https://u:p@ss@host.example/", "https://host.example:443"),
        ("http://[2001:DB8::1]:8080/", "http://[2001:db8::1]:8080"),
        ("https://bücher.example/", "https://xn--bcher-kva.example:443"),
        ("http://0x7f.1/", "http://127.0.0.1:80"),
    ] {
        assert_eq!(Place::parse(text).map(|place| place.origin()), Ok(origin.to_owned()), "{text}");
    }
}
