//! Just enough HTTP/1 to read what came back, tolerant of faulty bytes.

/// One response as a client reads it.
#[derive(Debug, Clone, Default)]
pub struct Response {
    pub status: u16,
    /// The words behind the status code.
    pub phrase: String,
    /// Lower-case names and trimmed values, octets as Latin-1, in the order of the lines.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The trailer fields of a chunked body.
    pub trailers: Vec<(String, String)>,
    /// Whether the body ended as its framing says.
    pub complete: bool,
}

impl Response {
    /// All values of a header, by its lower-case name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect()
    }

    /// The first value of a header, by its lower-case name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// A 1xx that another response follows; 101 is final.
    pub fn interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Whether no more HTTP follows on the connection.
    fn opens_tunnel(&self, method: Option<&&str>) -> bool {
        self.status == 101 || (method == Some(&"CONNECT") && (200..300).contains(&self.status))
    }

    fn chunked(&self) -> bool {
        self.all("transfer-encoding").iter().any(|v| v.to_ascii_lowercase().contains("chunked"))
    }
}

/// Where `needle` first occurs.
pub fn find(data: &[u8], needle: &[u8]) -> Option<usize> {
    data.windows(needle.len()).position(|window| window == needle)
}

/// The head and what follows its empty line; a lone LF ends a line too.
pub fn split_head(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let strict = find(data, b"\r\n\r\n");
    let lone = find(&data[..strict.unwrap_or(data.len())], b"\n\n");
    let (at, length) = lone.map(|at| (at, 2)).or(strict.map(|at| (at, 4)))?;
    Some((&data[..at], &data[at + length..]))
}

/// One octet per char, as HTTP/1 heads are read here.
pub fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

/// The fields below the first line of a head.
pub fn fields(head: &[u8]) -> Vec<(String, String)> {
    latin1(head).split('\n').skip(1).filter_map(field).collect()
}

fn field(line: &str) -> Option<(String, String)> {
    let (name, value) = line.trim_end_matches('\r').split_once(':')?;
    Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

/// What `read_chunked` made of some bytes.
#[derive(Debug, Default)]
pub struct Chunked<'a> {
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    pub rest: &'a [u8],
    pub complete: bool,
}

/// Decodes a chunked body; a fault counts as incomplete.
pub fn read_chunked(mut data: &[u8]) -> Chunked<'_> {
    let mut out = Chunked::default();
    while let Some(end) = find(data, b"\r\n") {
        let line = latin1(&data[..end]);
        let size =
            line.split(';').next().map(str::trim).and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let Some(size) = size else {
            out.rest = data;
            return out;
        };
        data = &data[end + 2..];
        if size == 0 {
            return read_trailers(data, out);
        }
        out.body.extend_from_slice(&data[..size.min(data.len())]);
        if data.len() < size.saturating_add(2) {
            return out;
        }
        data = &data[size + 2..];
    }
    out
}

fn read_trailers<'a>(mut data: &'a [u8], mut out: Chunked<'a>) -> Chunked<'a> {
    while let Some(end) = find(data, b"\r\n") {
        if end == 0 {
            out.rest = &data[2..];
            out.complete = true;
            return out;
        }
        out.trailers.extend(field(&latin1(&data[..end])));
        data = &data[end + 2..];
    }
    out
}

/// Splits a client's view into responses and what follows the last of them.
///
/// `methods` are those of the requests, in order: they say which answers have no
/// body and after which one the bytes are a tunnel.
pub fn parse<'a>(mut data: &'a [u8], methods: &[String], eof: bool) -> (Vec<Response>, &'a [u8]) {
    let mut methods = methods.iter().map(String::as_str).peekable();
    let mut out = Vec::new();
    while let Some((answer, rest)) = next_response(data, methods.peek().unwrap_or(&"GET"), eof) {
        data = rest;
        let (interim, done) = (answer.interim(), answer.opens_tunnel(methods.peek()) || !answer.complete);
        out.push(answer);
        if done {
            break;
        }
        if !interim {
            methods.next();
        }
    }
    (out, data)
}

/// The response that `data` begins with, so far as it is there, and what follows it.
///
/// `method` is that of the request it answers. Nothing while the head is incomplete.
pub fn next_response<'a>(data: &'a [u8], method: &str, eof: bool) -> Option<(Response, &'a [u8])> {
    let (mut answer, rest) = parse_head(data)?;
    let bodiless = answer.interim() || method == "HEAD" || matches!(answer.status, 204 | 304);
    let after = if bodiless || answer.opens_tunnel(Some(&method)) {
        answer.complete = true;
        rest
    } else {
        read_body(&mut answer, rest, eof)
    };
    Some((answer, after))
}

/// The head that `data` begins with as a response without its body, and what follows.
pub fn parse_head(data: &[u8]) -> Option<(Response, &[u8])> {
    let (head, rest) = split_head(data)?;
    let first = latin1(head.split(|&b| b == b'\n').next()?);
    let mut words = first.trim_end_matches('\r').splitn(3, ' ');
    let status = words.next().filter(|w| w.starts_with("HTTP/")).and(words.next())?.parse().ok()?;
    let phrase = words.next().unwrap_or_default().to_owned();
    Some((Response { status, phrase, headers: fields(head), ..Response::default() }, rest))
}

fn read_body<'a>(answer: &mut Response, rest: &'a [u8], eof: bool) -> &'a [u8] {
    if answer.chunked() {
        let chunked = read_chunked(rest);
        answer.body = chunked.body;
        answer.trailers = chunked.trailers;
        answer.complete = chunked.complete;
        return chunked.rest;
    }
    match answer.get("content-length").and_then(|v| v.parse::<usize>().ok()) {
        Some(size) => {
            let end = size.min(rest.len());
            answer.body = rest[..end].to_vec();
            answer.complete = rest.len() >= size;
            &rest[end..]
        }
        None => {
            answer.body = rest.to_vec();
            answer.complete = eof;
            &[]
        }
    }
}

/// The length of the whole request that `data` begins with, or nothing while some of it is missing.
pub fn request_length(data: &[u8]) -> Option<usize> {
    let (head, rest) = split_head(data)?;
    let start = data.len() - rest.len();
    let fields = fields(head);
    let value = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.to_ascii_lowercase());
    if value("transfer-encoding").is_some_and(|v| v.contains("chunked")) {
        let chunked = read_chunked(rest);
        return chunked.complete.then(|| data.len() - chunked.rest.len());
    }
    let size = value("content-length").and_then(|v| v.parse::<usize>().ok()).unwrap_or(0);
    (rest.len() >= size).then_some(start.saturating_add(size))
}
