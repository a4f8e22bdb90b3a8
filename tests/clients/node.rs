//! Node: `http.request` to the proxy with an absolute target, and CONNECT by hand with TLS inside.
//!
//! That is what proxy agents do for its clients. Node's own proxy support (`NODE_USE_ENV_PROXY`)
//! came with version 24 and is not covered.

use crate::bench::{Bench, By, FILE, NO, OK, REFUSED, content, file};
use crate::tool::{self, Outcome};

type Run = Box<dyn Fn(&Bench, &str, &str) -> Outcome>;

/// Arguments: method, URL. With PUT it sends the file `data`.
const SCRIPT: &str = r#"
const fs = require("fs"), http = require("http"), https = require("https"), tls = require("tls");
const [method, target] = process.argv.slice(2);
const url = new URL(target), proxy = new URL(process.env.HTTP_PROXY);
const fail = (text) => { console.error(text); process.exit(1); };
const show = (answer) => {
  if (answer.statusCode !== 200) fail(`${answer.statusCode} ${answer.statusMessage}`);
  answer.pipe(process.stdout);
};
const send = (request) => {
  request.on("response", show).on("error", (error) => fail(error.message));
  if (method === "PUT") fs.createReadStream("data").pipe(request); else request.end();
};
const to = { host: proxy.hostname, port: proxy.port };
if (url.protocol === "http:") {
  send(http.request({ ...to, method, path: target, headers: { host: url.host }, agent: false }));
} else {
  const connect = http.request({ ...to, method: "CONNECT", path: url.host, agent: false });
  connect.on("connect", (answer, socket) => {
    if (answer.statusCode !== 200) fail(`CONNECT: ${answer.statusCode} ${answer.statusMessage}`);
    const createConnection = () => tls.connect({ socket, servername: url.hostname });
    send(https.request(target, { method, createConnection }));
  });
  connect.on("error", (error) => fail(error.message)).end();
}
"#;

fn setup(by: By) -> Option<(Bench, Run)> {
    let program = tool::find("node")?;
    let bench = Bench::start(by);
    std::fs::write(bench.home().join("fetch.js"), SCRIPT).unwrap();
    let run = move |bench: &Bench, method: &str, url: &str| {
        let mut command = bench.client(&program);
        command.env("NODE_EXTRA_CA_CERTS", bench.ca()).args(["fetch.js", method, url]);
        tool::run(command)
    };
    Some((bench, Box::new(run)))
}

#[test]
fn it_downloads() {
    let Some((bench, node)) = setup(By::Source) else { return };
    for path in [FILE, "/chunked"] {
        for url in bench.urls(OK, path) {
            assert!(node(&bench, "GET", &url).success() == file(), "{url}");
        }
    }
    bench.settle();
}

#[test]
fn it_uploads() {
    let Some((bench, node)) = setup(By::Source) else { return };
    let data = content(500_000);
    std::fs::write(bench.home().join("data"), &data).unwrap();
    for url in bench.urls(OK, "/upload") {
        assert!(node(&bench, "PUT", &url).success() == data, "{url}");
    }
    bench.settle();
}

#[test]
fn it_shows_why_it_was_refused() {
    let Some((bench, node)) = setup(By::Source) else { return };
    node(&bench, "GET", &bench.http(NO, FILE)).fails_saying(&format!("403 egret {REFUSED}"));
    node(&bench, "GET", &bench.https(NO, FILE)).fails_saying(&format!("CONNECT: 403 egret {REFUSED}"));
    bench.refused_no(1, 1);
}

/// Debian's proxy agents. Arguments: URL.
const AGENTS: &str = r#"
const http = require("http"), https = require("https"), url = new URL(process.argv[2]);
const agent = (name, kind) => { const all = require(name); return new (all[kind] || all)(process.env.HTTP_PROXY); };
const [library, through] = url.protocol === "http:"
  ? [http, agent("http-proxy-agent", "HttpProxyAgent")]
  : [https, agent("https-proxy-agent", "HttpsProxyAgent")];
library.get(url, { agent: through }, (answer) => {
  if (answer.statusCode !== 200) { console.error(answer.statusCode, answer.statusMessage); process.exit(1); }
  answer.pipe(process.stdout);
});
"#;

#[test]
fn its_proxy_agents_send_their_token() {
    let Some(program) = tool::find("node") else { return };
    let bench = Bench::start(By::Token);
    let run = |arguments: &[&str]| {
        let mut command = bench.client(&program);
        command.env("NODE_PATH", "/usr/share/nodejs").env("NODE_EXTRA_CA_CERTS", bench.ca()).args(arguments);
        tool::run(command)
    };
    if !run(&["-e", "require('http-proxy-agent'); require('https-proxy-agent')"]).status.success() {
        return tool::missing("node-https-proxy-agent");
    }
    std::fs::write(bench.home().join("agents.js"), AGENTS).unwrap();
    for url in bench.urls(OK, FILE) {
        assert!(run(&["agents.js", &url]).success() == file(), "{url}");
    }
    bench.settle();
}
