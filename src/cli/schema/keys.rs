//! Every key that the loader knows, with its type and one line of help.
//!
//! A test holds this table and the loader together, in both directions.

/// A key of a table.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) required: bool,
    /// What it means, and what holds without it.
    pub(super) help: &'static str,
}

/// What may stand at a key.
pub(super) enum Kind {
    /// A string.
    Text,
    /// A string that matches the regular expression.
    Matching(&'static str),
    /// One of some strings.
    Words(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number from one to the other.
    Number(i64, i64),
    /// A string or a list of strings.
    Texts,
    /// A port, a range of ports, or a list of them.
    Ports,
    /// A table.
    Table(&'static [Key]),
    /// An array of tables.
    Tables(&'static [Key]),
    /// A table of tables, whose names are the operator's.
    Named(&'static [Key]),
    /// A table of strings or lists of strings, whose names are the operator's.
    NamedTexts,
}

/// Five seconds, and the like.
const DURATION: Kind = Kind::Matching("^[0-9]+(ms|s|m|h|d)$");
/// So many bytes in a period.
const BYTES: Kind = Kind::Matching("^[0-9]+(B|kB|KB|KiB|MB|MiB|GB|GiB|TB|TiB)?/[0-9a-z]+$");

const fn key(name: &'static str, kind: Kind, help: &'static str) -> Key {
    Key { name, kind, required: false, help }
}

const fn required(name: &'static str, kind: Kind, help: &'static str) -> Key {
    Key { name, kind, required: true, help }
}

/// A configuration file.
pub(super) const CONFIGURATION: &[Key] = &[
    key("listen", Kind::Table(LISTEN), "Where the proxy and its control interface listen"),
    key("dns", Kind::Table(DNS), "How names are looked up"),
    key("audit", Kind::Table(AUDIT), "Where decisions are recorded"),
    key("state", Kind::Table(STATE), "What is kept between runs"),
    key("identity", Kind::Table(IDENTITY), "How clients are told apart"),
    key("timeouts", Kind::Table(TIMEOUTS), "How long things may take"),
    key("upstream", Kind::Table(UPSTREAM), "A parent proxy for what goes out"),
    key("deny", Kind::Tables(DENY), "Operator denials; they beat every policy"),
    key("policy", Kind::Named(POLICY), "Policies by name"),
    key("sandbox", Kind::Tables(SANDBOX), "Who is which sandbox; the first match wins"),
];

/// A file in `rules/`.
pub(super) const RULE_SET: &[Key] = &[
    key("description", Kind::Text, "What the rule set is for"),
    key("documentation", Kind::Texts, "Where the vendor documents these hosts"),
    key("deny", Kind::Tables(DENY), "Denials; they beat every permission"),
    key("allow", Kind::Tables(ALLOW), "Permissions"),
];

const LISTEN: &[Key] = &[
    key("proxy", Kind::Texts, "Addresses for clients. Default: \"127.0.0.1:3128\""),
    key("tls", Kind::Texts, "Addresses for clients that reach the proxy over TLS. Default: none"),
    key(
        "socks",
        Kind::Texts,
        "Addresses for clients of SOCKS5; one may stand in `proxy` as well. Default: none",
    ),
    key(
        "transparent",
        Kind::Texts,
        "Addresses to which connections of clients that know of no proxy are diverted. Default: none",
    ),
    key("tls_certificate", Kind::Text, "Certificate chain of the TLS listener (PEM)"),
    key("tls_key", Kind::Text, "Its private key (PEM)"),
    key(
        "tls_client_ca",
        Kind::Text,
        "Authorities whose certificates identify clients (PEM). Default: none, none is asked for",
    ),
    key("tls_client_crl", Kind::Text, "What these authorities have revoked (PEM)"),
    key(
        "tls_client",
        Kind::Words(&["optional", "required"]),
        "Must a client have a certificate? Default: \"optional\"",
    ),
    key("dns", Kind::Texts, "Addresses where clients ask for names, over UDP and TCP. Default: none"),
    key("control", Kind::Text, "Address of the control interface. Default: \"127.0.0.1:3129\""),
    key("name", Kind::Text, "This instance's pseudonym in Via and Proxy-Status. Default: \"egret\""),
    key(
        "max_connections",
        Kind::Number(1, 1_000_000),
        "Ceiling on client connections. Default: from the descriptor limit",
    ),
    key(
        "control_token_file",
        Kind::Text,
        "File with the control interface's token, needed where it is not on loopback",
    ),
];

const DNS: &[Key] = &[
    key("servers", Kind::Texts, "\"system\", or a list of servers. Default: \"system\""),
    key("timeout", DURATION, "The longest look-up. Default: \"5s\""),
    key("hosts", Kind::NamedTexts, "Names with fixed addresses, checked like any other answer"),
    key("ca_file", Kind::Text, "Further certificate authorities for tls:// and https:// servers (PEM)"),
    key("nat64", Kind::Texts, "NAT64 prefixes of this network; judged by the IPv4 address inside"),
];

const AUDIT: &[Key] = &[
    key("file", Kind::Text, "The file, or - for standard output. Default: \"audit.ndjson\""),
    key(
        "on_failure",
        Kind::Words(&["deny", "allow"]),
        "What happens to traffic that can't be recorded. Default: \"deny\"",
    ),
    key("paths", Kind::Flag, "Write paths as they are instead of as a keyed hash. Default: false"),
    key("sync", Kind::Flag, "Force each batch to the disk. Default: false"),
];

const STATE: &[Key] = &[key("dir", Kind::Text, "Folder of the state. Default: \"egret-state\"")];

const IDENTITY: &[Key] = &[
    key(
        "anonymous",
        Kind::Text,
        "\"deny\", or the policy of clients that nothing identifies. Default: \"deny\"",
    ),
    key(
        "token_keys",
        Kind::Texts,
        "Public keys of sandbox tokens, up to eight files. Default: none, tokens are off",
    ),
    key("audience", Kind::Text, "What the claim aud of a token has to be. Default: \"egret\""),
    key(
        "register",
        Kind::Texts,
        "Networks in which sandboxes may be registered through the control interface. Default: none",
    ),
    key("register_policies", Kind::Texts, "Policies that these may name. Default: every one"),
];

const TIMEOUTS: &[Key] = &[
    key("header", DURATION, "For a whole request head. Default: \"10s\""),
    key("idle", DURATION, "For a client connection without a request. Default: \"60s\""),
    key("tls", DURATION, "For the ClientHello of a tunnel. Default: \"10s\""),
    key("connect", DURATION, "For connecting to a destination. Default: \"10s\""),
    key("response", DURATION, "For the head of a response. Default: \"30s\""),
    key("body", DURATION, "For a body to make any progress. Default: \"300s\""),
    key("drain", DURATION, "For open connections at a stop. Default: \"30s\""),
];

const UPSTREAM: &[Key] = &[
    required(
        "proxy",
        Kind::Matching("^[Hh][Tt][Tt][Pp]://[^/@?#]+:[0-9]+/?$"),
        "URL of the parent proxy, as http://HOST:PORT",
    ),
    key("no_proxy", Kind::Texts, "Names and networks that are reached without it"),
    key("credentials_file", Kind::Text, "File with user:password for it, closed to other users"),
];

const SANDBOX: &[Key] = &[
    required(
        "id",
        Kind::Text,
        "Sandbox ID; {ip} in it stands for the client's address, {cert} for what a certificate has there",
    ),
    key(
        "source",
        Kind::Texts,
        "Networks of the clients that are this sandbox; required unless auth is \"cert\"",
    ),
    required("policy", Kind::Text, "Name of its policy"),
    key(
        "auth",
        Kind::Words(&["source", "token", "cert"]),
        "Its address alone, a token from there, or a client certificate. Default: \"source\"",
    ),
];

const POLICY: &[Key] = &[
    key("mode", Kind::Words(&["enforce", "observe"]), "Refuse, or only record. Default: \"enforce\""),
    key("default", Kind::Words(&["deny", "allow"]), "Where no rule matches. Default: \"deny\""),
    key("default_tls", Kind::Words(&["required", "any"]), "`tls` for what `default = \"allow\"` lets pass"),
    key("deny", Kind::Tables(DENY), "Denials; they beat every permission"),
    key("rules", Kind::Texts, "Names of rule sets: files in rules/ without .toml"),
    key("allow", Kind::Tables(ALLOW), "Permissions, before those of the rule sets"),
    key("limits", Kind::Table(LIMITS), "What each sandbox may use"),
];

const LIMITS: &[Key] = &[
    key(
        "requests",
        Kind::Matching("^[0-9]+/[0-9a-z]+( burst [0-9]+)?$"),
        "CONNECTs and requests, like \"50/s burst 200\"",
    ),
    key("connections", Kind::Number(1, 4_294_967_295), "Open at once"),
    key("bytes", BYTES, "Both directions, like \"2GiB/day\""),
    key("bytes_up", BYTES, "From the sandbox, like \"200MiB/day\""),
    key("bytes_down", BYTES, "To the sandbox, like \"2GiB/day\""),
    key("domains", Kind::Matching("^[0-9]+/[0-9a-z]+$"), "Distinct hosts, like \"200/hour\""),
    key(
        "dns_queries",
        Kind::Matching("^[0-9]+/[0-9a-z]+( burst [0-9]+)?$"),
        "Questions for names. Default: \"20/s burst 100\"",
    ),
    key(
        "dns_names",
        Kind::Matching("^[0-9]+/[0-9a-z]+$"),
        "Distinct names below one domain that a wildcard lets be asked for. Default: \"100/h\"",
    ),
    key("tunnel_idle", DURATION, "How long a tunnel may be silent; \"0s\" for no limit. Default: \"1h\""),
    key("tunnel_lifetime", DURATION, "How long a tunnel may be open. Default: no limit"),
];

const ALLOW: &[Key] = &[
    SHARED_SUFFIX,
    DOMAINS,
    key(
        "addresses",
        Kind::Texts,
        "Networks that every resolved address must lie in; alone, address literals. Default: public addresses",
    ),
    key("ports", Kind::Ports, "Ports and ranges like \"8000-8010\". Default: [80, 443]"),
    TLS,
    METHODS,
    PATHS,
    REASON,
];

const DENY: &[Key] = &[
    SHARED_SUFFIX,
    DOMAINS,
    key("addresses", Kind::Texts, "Networks; alone, any name that resolves into them as well"),
    key("ports", Kind::Ports, "Ports and ranges like \"8000-8010\". Default: every port"),
    TLS,
    METHODS,
    PATHS,
    REASON,
];

const SHARED_SUFFIX: Key =
    key("shared_suffix", Kind::Flag, "Permit a wildcard where strangers can register names. Default: false");
const DOMAINS: Key = key(
    "domains",
    Kind::Texts,
    "a.example, *.a.example (subdomains) or **.a.example (both), each with an own :port if need be",
);
const TLS: Key = key(
    "tls",
    Kind::Words(&["required", "any"]),
    "What a tunnel must carry; allow rules only. Default: required on 443, any elsewhere",
);
const METHODS: Key = key("methods", Kind::Texts, "HTTP methods; such a rule never matches a tunnel");
const PATHS: Key =
    key("paths", Kind::Texts, "Path globs like \"/repos/*/releases/**\"; such a rule never matches a tunnel");
const REASON: Key = key("reason", Kind::Text, "Text for the client, the audit record and explain");
