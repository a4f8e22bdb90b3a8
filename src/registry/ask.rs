//! Asks registries where their files are, each in the way of its kind, one after the other.

use std::collections::BTreeSet;

use egret_policy::{Host, Reason};
use http::StatusCode;
use http::header::WWW_AUTHENTICATE;

use super::fetch::{Fetcher, Reply, Silence, words};
use super::finding::{Ask, Findings, Found};
use super::index;
use super::place::Place;
use super::report::{Answers, Named, Reach};

/// Longest answer that is read whole, in octets.
const DOCUMENT: usize = 16 << 20;
/// Where the beginning is enough.
const BEGINNING: usize = 256 << 10;
/// Registries that are asked in one run.
const MOST_ASKED: usize = 200;
/// A package that an index of everything has.
const PIP: &str = "pip";
const NPM: &str = "npm";

/// What is liked best of what each kind of registry can answer.
const PAGE: &str = "text/html, application/vnd.pypi.simple.v1+json;q=0.9, */*;q=0.1";
const JSON: &str = "application/json, */*;q=0.1";
const ANY: &str = "*/*";

/// Asks every registry that was found, and looks up where all of them are. `packages` are names to
/// ask for beside those that an index of everything has.
pub async fn ask(fetcher: &Fetcher, findings: &Findings, packages: &[String]) -> Answers {
    let mut asker = Asker { fetcher, findings, packages, answers: Answers::default() };
    let mut asked: Vec<(&Place, &Ask)> = Vec::new();
    for found in &findings.found {
        if asked.contains(&(&found.place, &found.ask)) {
            continue;
        }
        asked.push((&found.place, &found.ask));
        if asked.len() > MOST_ASKED {
            asker.silent(found, "too many registries for one run; name one client at a time");
        } else if let Err(silence) = asker.one(found).await {
            asker.silent(found, &silence.to_string());
        }
    }
    asker.look_up().await;
    asker.answers
}

struct Asker<'a> {
    fetcher: &'a Fetcher,
    findings: &'a Findings,
    packages: &'a [String],
    answers: Answers,
}

impl Asker<'_> {
    async fn one(&mut self, found: &Found) -> Result<(), Silence> {
        match &found.ask {
            Ask::Simple => self.simple(found).await,
            Ask::Links => {
                let reply = self.get(found, &found.place, PAGE, DOCUMENT).await?;
                if self.status(found, &reply) {
                    self.take(found, index::files(&reply.body, &reply.place), "files");
                }
                Ok(())
            }
            Ask::Sparse => self.sparse(found).await,
            Ask::Npm(scope) => self.npm(found, scope.as_deref()).await,
            Ask::Release(path) => {
                let reply = self.get(found, &found.place.below(path), ANY, BEGINNING).await?;
                self.status(found, &reply);
                Ok(())
            }
            Ask::Mirrors => {
                let reply = self.get(found, &found.place, ANY, BEGINNING).await?;
                if self.status(found, &reply) {
                    self.take(found, index::mirrors(&reply.body), "a mirror");
                }
                Ok(())
            }
            Ask::Images => self.images(found).await,
            Ask::Nothing("") => Ok(()),
            Ask::Nothing(why) => {
                self.silent(found, why);
                Ok(())
            }
        }
    }

    async fn simple(&mut self, found: &Found) -> Result<(), Silence> {
        let mut reply = None;
        for name in
            self.packages.iter().map(String::as_str).filter(|name| !name.contains(['/', '@'])).chain([PIP])
        {
            let page = found.place.below(&format!("{}/", normal(name)));
            let got = self.get(found, &page, PAGE, DOCUMENT).await?;
            let there = got.status.is_success();
            if there && !self.named_files(found, &got) {
                return Ok(());
            }
            reply = Some(got);
        }
        // It has none of them: whatever comes first will do.
        if reply.as_ref().is_some_and(|reply| reply.status == StatusCode::NOT_FOUND) {
            let root = self.get(found, &found.place.below(""), PAGE, BEGINNING).await?;
            if let Some(page) = index::first_project(&root.body, &root.place) {
                let got = self.get(found, &page, PAGE, DOCUMENT).await?;
                if got.status.is_success() && !self.named_files(found, &got) {
                    return Ok(());
                }
                reply = Some(got);
            }
        }
        if let Some(reply) = reply {
            self.status(found, &reply);
            if reply.status.is_success() || reply.status == StatusCode::NOT_FOUND {
                self.silent(found, "it names no files; name a package that it has with --package");
            }
        }
        Ok(())
    }

    /// Takes the files of a page; are there none?
    fn named_files(&mut self, found: &Found, reply: &Reply) -> bool {
        let files = index::files(&reply.body, &reply.place);
        let none = files.is_empty();
        self.take(found, files, "files");
        none
    }

    async fn sparse(&mut self, found: &Found) -> Result<(), Silence> {
        let reply = self.get(found, &found.place.below("config.json"), JSON, BEGINNING).await?;
        if !self.status(found, &reply) {
            return Ok(());
        }
        match index::sparse(&reply.body, &reply.place) {
            Some((Some(dl), api)) => {
                self.take(found, vec![dl.clone()], "crates");
                if let Some(api) = api.filter(|api| !api.is_beside(&dl) && !api.is_beside(&found.place)) {
                    let host = api.destination().to_string();
                    self.silent(
                        found,
                        &format!("not proposed: {host}, where crates are published and searched for"),
                    );
                }
            }
            Some((None, _)) => self.silent(found, "its crates are on hosts that depend on the crate"),
            None => self.silent(found, "its config.json can't be understood"),
        }
        Ok(())
    }

    async fn npm(&mut self, found: &Found, scope: Option<&str>) -> Result<(), Silence> {
        let is_of =
            |name: &str, scope: &str| name.strip_prefix(scope).is_some_and(|rest| rest.starts_with('/'));
        let own = |name: &&str| match scope {
            Some(scope) => is_of(name, scope),
            // What has a registry of its own is no other's business.
            None => !self.findings.found.iter().any(|found| match &found.ask {
                Ask::Npm(Some(scope)) => is_of(name, scope),
                _ => false,
            }),
        };
        let default = if scope.is_none() { Some(NPM) } else { None };
        let names: Vec<_> = self.packages.iter().map(String::as_str).filter(own).chain(default).collect();
        if names.is_empty() {
            self.silent(found, "name one of its packages with --package, and egret asks where its files are");
        }
        let mut last = None;
        for name in names {
            let page = found.place.below(&name.replacen('/', "%2f", 1));
            let mut reply = self.get(found, &page.below("latest"), JSON, DOCUMENT).await?;
            if !reply.status.is_success() {
                reply = self.get(found, &page, JSON, DOCUMENT).await?;
            }
            let tarballs = index::tarballs(&reply.body, &reply.place);
            if !tarballs.is_empty() {
                self.take(found, tarballs, "tarballs");
                return Ok(());
            }
            last = Some(reply);
        }
        if let Some(reply) = last
            && self.status(found, &reply)
        {
            self.silent(found, "it names no tarballs; name a package that it has with --package");
        }
        Ok(())
    }

    async fn images(&mut self, found: &Found) -> Result<(), Silence> {
        let reply = self.get(found, &found.place.at("/v2/"), JSON, BEGINNING).await?;
        let challenges =
            reply.headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let realm = challenges.filter_map(|text| index::realm(text, &reply.place)).next();
        self.take(found, realm.into_iter().collect(), "tokens");
        self.silent(found, "layers of images may be on another host, which only a pull shows");
        Ok(())
    }

    /// Asks, and takes where redirects lead.
    async fn get(
        &mut self,
        found: &Found,
        place: &Place,
        accept: &'static str,
        most: usize,
    ) -> Result<Reply, Silence> {
        // What the operator has unlocked is for the registries that the settings name.
        let is_set = |place: &Place| self.is_set(place);
        let reply = self.fetcher.get(place, accept, most, is_set).await?;
        let passed = reply.passed.clone();
        self.take(found, passed, "where redirects lead from");
        Ok(reply)
    }

    fn is_set(&self, place: &Place) -> bool {
        self.findings.found.iter().any(|found| found.place.is_beside(place))
    }

    /// Takes what a registry names beside itself, once.
    fn take(&mut self, found: &Found, places: Vec<Place>, role: &'static str) {
        for place in places.into_iter().filter(|place| !place.is_beside(&found.place)) {
            let (origin, by) = (found.origin.clone(), found.place.clone());
            let known = |named: &Named| {
                named.origin == origin && named.place.is_beside(&place) && named.by.is_beside(&by)
            };
            if !self.answers.named.iter().any(known) {
                self.answers.named.push(Named { origin, by, role, place });
            }
        }
    }

    /// Is it an answer at all? Else it is told why not.
    fn status(&mut self, found: &Found, reply: &Reply) -> bool {
        match reply.status {
            status if status.is_success() => return true,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let client = found.origin.client.name();
                self.silent(found, &format!("it asks for credentials, and egret sends none; if its files are on another host, observe one run of {client}, which has them, and learn (`egret learn`)"));
            }
            status => self.silent(found, &format!("it answers {}", status.as_u16())),
        }
        false
    }

    fn silent(&mut self, found: &Found, why: &str) {
        self.answers.silent.push((found.origin.clone(), found.place.clone(), why.to_owned()));
    }

    /// Where everything is that gets a rule.
    async fn look_up(&mut self) {
        let named = self.answers.named.iter().map(|named| &named.place);
        let mut seen = BTreeSet::new();
        let places: Vec<_> =
            self.findings.found.iter().map(|found| &found.place).chain(named).cloned().collect();
        for place in places {
            let to = place.destination();
            if !matches!(to.host(), Host::Name(_)) || !seen.insert(to.to_string()) {
                continue;
            }
            let reach = match self.fetcher.look(to, true).await {
                Ok(route) => {
                    let addresses = route.addresses().iter().map(|pinned| pinned.socket_addr().ip());
                    let networks = addresses.flat_map(|address| self.fetcher.networks(address));
                    let networks: BTreeSet<_> = networks.map(ToString::to_string).collect();
                    if networks.is_empty() { Reach::Public } else { Reach::Private(networks) }
                }
                Err(refusal) if refusal.reason == Reason::DomainDenied => {
                    Reach::Refused("an operator's rule denies it, whatever is allowed here".to_owned())
                }
                Err(refusal) => Reach::Refused(words(&refusal)),
            };
            self.answers.reach.insert(to.to_string(), reach);
        }
    }
}

/// A project's name as its page has it (PEP 503).
fn normal(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}
