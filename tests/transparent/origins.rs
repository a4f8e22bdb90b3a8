//! Servers outside: HTTP at 80 and 8080, TLS at 443, and one that speaks first at 2525.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What the server at 2525 says first.
pub const BANNER: &str = "220 hello\r\n";

/// Starts them at every address of the namespace.
pub fn start(key: &CertifiedKey<KeyPair>) {
    serve(80, serve_http);
    serve(8080, serve_http);
    let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
    let config = Arc::new(config);
    serve(443, move |client| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        serve_http(StreamOwned::new(session, client));
    });
    serve(2525, |mut client| {
        let _ = client.write_all(BANNER.as_bytes());
        let reader = BufReader::new(client.try_clone().unwrap());
        for line in reader.lines().map_while(Result::ok) {
            if client.write_all(format!("250 {line}\r\n").as_bytes()).is_err() {
                break;
            }
        }
    });
}

fn serve(port: u16, each: impl Fn(TcpStream) + Send + Sync + 'static) {
    let listener = TcpListener::bind(("::", port)).unwrap();
    let each = Arc::new(each);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let each = Arc::clone(&each);
            std::thread::spawn(move || each(client));
        }
    });
}

/// Answers requests without bodies by what it read of them: method, target and `Host`.
fn serve_http(mut stream: impl Read + Write) {
    let mut head = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let words: Vec<_> = text.split_whitespace().take(2).collect();
        let host =
            text.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("host: ").map(str::to_owned));
        let body = format!("{} {}\n", words.join(" "), host.unwrap_or_default());
        let location = if words.get(1) == Some(&"/away") { "Location: http://refused.test/\r\n" } else { "" };
        let status = if location.is_empty() { "200 OK" } else { "302 Found" };
        let answer = format!("HTTP/1.1 {status}\r\n{location}Content-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
            return;
        }
        head.clear();
    }
}
