#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use aws_lc_rs::hmac;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::identity::Audience;

const NOW: u64 = 1_800_000_000;

fn claims() -> Claims {
    serde_json::from_value(json!({
        "sub": "build-7", "policy": "build", "aud": "egret", "exp": NOW + 900, "nbf": NOW, "iat": NOW,
        "jti": "id-1", "src": ["10.0.0.0/8"], "tool": "curl",
    }))
    .unwrap()
}

struct Issuer {
    key: SigningKey,
    keys: TokenKeys,
}

impl Issuer {
    fn new() -> Self {
        let key = SigningKey::generate().unwrap();
        let keys = TokenKeys::new(vec![key.public().unwrap()], "egret");
        Self { key, keys }
    }

    fn raw(&self, header: &str, claims: &[u8]) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.key.sign(signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn with_header(&self, header: &str) -> String {
        self.raw(header, &serde_json::to_vec(&claims()).unwrap())
    }

    fn judge(&self, token: &str) -> Result<Client, TokenError> {
        self.judge_as(token, None, "10.1.2.3", NOW)
    }

    fn judge_as(
        &self,
        token: &str,
        user: Option<&str>,
        source: &str,
        now: u64,
    ) -> Result<Client, TokenError> {
        let credentials = Credentials { user: user.map(str::to_owned), token: token.to_owned() };
        self.keys.identify(&credentials, source.parse().unwrap(), now).map_err(|(error, _)| error)
    }

    fn judge_claims(&self, change: impl FnOnce(&mut Claims)) -> Result<Client, TokenError> {
        let mut changed = claims();
        change(&mut changed);
        self.judge(&sign(&changed, &self.key).unwrap())
    }
}

#[test]
fn a_good_token_names_its_client() {
    let issuer = Issuer::new();
    let client = issuer.judge(&sign(&claims(), &issuer.key).unwrap()).unwrap();
    assert_eq!((&*client.sandbox, &*client.policy), ("build-7", "build"));
    let token = client.token().unwrap();
    assert_eq!((&*token.id, token.issued, token.tool.as_deref()), ("id-1", Some(NOW), Some("curl")));
    assert!(issuer.keys.trust(token));
    assert!(!TokenKeys::new(vec![issuer.key.public().unwrap()], "other").trust(token));
    assert!(!Issuer::new().keys.trust(token));
}

/// RFC 8037 appendix A.4. Its payload is a sentence, so the claims are what fails.
#[test]
fn a_signature_of_the_standard_holds() {
    const KEY: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    const TOKEN: &str = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.\
        hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    // What stands before the key in SubjectPublicKeyInfo is whole in base64.
    let der = [STANDARD.decode("MCowBQYDK2VwAyEA").unwrap(), URL_SAFE_NO_PAD.decode(KEY).unwrap()].concat();
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", STANDARD.encode(der));
    let keys = TokenKeys::new(vec![PublicKey::from_pem(&pem).unwrap()], "egret");
    assert_eq!(keys.open(TOKEN).map(|_| ()), Err(TokenError::Claims));
    assert_eq!(keys.open(&TOKEN.replace("RXhh", "RXhi")).map(|_| ()), Err(TokenError::Signature));
}

#[test]
fn any_of_several_keys_will_do() {
    let (old, new) = (Issuer::new(), Issuer::new());
    let both = TokenKeys::new(vec![old.key.public().unwrap(), new.key.public().unwrap()], "egret");
    for issuer in [&old, &new] {
        assert!(both.open(&sign(&claims(), &issuer.key).unwrap()).is_ok());
    }
    assert_eq!(old.judge(&sign(&claims(), &new.key).unwrap()), Err(TokenError::Signature));
}

#[test]
fn no_other_algorithm_passes() {
    let issuer = Issuer::new();
    let body = serde_json::to_vec(&claims()).unwrap();
    let unsigned =
        |header: &str| format!("{}.{}.", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(&body));
    for alg in ["none", "None", "EdDSA"] {
        let token = unsigned(&format!(r#"{{"alg":"{alg}","typ":"JWT"}}"#));
        assert_eq!(issuer.judge(&token), Err(TokenError::Signature), "{alg}");
    }
    // The public key is no secret, so whoever knows it can make this MAC.
    let public = issuer.key.public().unwrap();
    for secret in [public.bytes().to_vec(), public.to_pem().into_bytes()] {
        let signed = unsigned(r#"{"alg":"HS256","typ":"JWT"}"#);
        let signed = signed.trim_end_matches('.');
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), signed.as_bytes());
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag));
        assert_eq!(issuer.judge(&token), Err(TokenError::Signature));
    }
}

#[test]
fn a_header_can_only_agree() {
    let issuer = Issuer::new();
    for good in [r#"{"alg":"EdDSA"}"#, r#"{"typ":"jwt","kid":"any","alg":"EdDSA"}"#] {
        assert!(issuer.judge(&issuer.with_header(good)).is_ok(), "{good}");
    }
    for bad in [
        "{}",
        "[]",
        "EdDSA",
        r#"{"alg":"none"}"#,
        r#"{"alg":"HS256"}"#,
        r#"{"alg":"eddsa"}"#,
        r#"{"alg":["EdDSA"]}"#,
        r#"{"alg":"none","alg":"EdDSA"}"#,
        r#"{"alg":"EdDSA","typ":"at+jwt"}"#,
        r#"{"alg":"EdDSA","crit":["exp"]}"#,
        r#"{"alg":"EdDSA","crit":null}"#,
        r#"{"alg":"EdDSA","typ":null}"#,
        r#"["EdDSA","JWT",null]"#,
        r#"["EdDSA",null,null]"#,
        r#"{"alg":"EdDSA"} {}"#,
    ] {
        assert_eq!(issuer.judge(&issuer.with_header(bad)), Err(TokenError::Header), "{bad}");
    }
}

#[test]
fn claims_of_another_shape_are_refused() {
    let issuer = Issuer::new();
    let header = r#"{"alg":"EdDSA"}"#;
    for body in ["", "null", "[]", "{}", "\"sub\"", "{\"sub\":\"a\"}"] {
        assert_eq!(issuer.judge(&issuer.raw(header, body.as_bytes())), Err(TokenError::Claims), "{body}");
    }
    // Good values, but not an object of UTF-8.
    let good = serde_json::to_value(claims()).unwrap();
    let list: Vec<&Value> = ["sub", "policy", "aud", "exp", "nbf", "jti"].map(|name| &good[name]).to_vec();
    let octets = good.to_string().replacen('{', "{\"x\":\"?\",", 1).replace('?', "\u{1}").into_bytes();
    let latin: Vec<u8> = octets.iter().map(|&b| if b == 1 { 0xe9 } else { b }).collect();
    let behind = good.to_string() + "{}";
    for body in [json!(list).to_string().into_bytes(), latin, behind.into_bytes()] {
        assert_eq!(issuer.judge(&issuer.raw(header, &body)), Err(TokenError::Claims), "{body:?}");
    }
    let mut wrong: Value = serde_json::to_value(claims()).unwrap();
    wrong["exp"] = json!("tomorrow");
    let token = issuer.raw(header, wrong.to_string().as_bytes());
    assert_eq!(issuer.judge(&token), Err(TokenError::Claims));
    assert_eq!(issuer.judge_claims(|c| c.sub = "a b".to_owned()), Err(BadClaim("sub").into()));
}

/// What one reader takes for a network and another for none, or for another one.
#[test]
fn networks_are_written_in_one_way() {
    let issuer = Issuer::new();
    for text in [
        "10.0.0.0/08",
        "10.0.0.0/+8",
        "10.0.0.0/ 8",
        "10.0.0.0/",
        "10.0.0.0/33",
        "010.0.0.0/8",
        "10.0.0/8",
        "10.0.0.1/8",
        "fd00::/08",
        "fd00::/129",
        "fd00::1/8",
        "[fd00::]/8",
        " 10.0.0.0/8",
        "10.0.0.0/8/8",
        "",
    ] {
        let judged = issuer.judge_claims(|c| c.src = Some(vec![text.to_owned()]));
        assert_eq!(judged, Err(BadClaim("src").into()), "{text}");
    }
}

#[test]
fn whose_and_from_where() {
    let issuer = Issuer::new();
    let token = sign(&claims(), &issuer.key).unwrap();
    assert!(issuer.judge_as(&token, Some("build-7"), "10.1.2.3", NOW).is_ok());
    assert_eq!(issuer.judge_as(&token, Some("Build-7"), "10.1.2.3", NOW), Err(TokenError::User));
    assert_eq!(issuer.judge_as(&token, None, "11.1.2.3", NOW), Err(TokenError::Source));
    let other = |c: &mut Claims| c.aud = Audience::One("other".to_owned());
    assert_eq!(issuer.judge_claims(other), Err(TokenError::Audience));
    assert!(issuer.judge_claims(|c| c.aud = Audience::Several(vec!["x".into(), "egret".into()])).is_ok());
    assert_eq!(issuer.judge_claims(|c| c.aud = Audience::Several(Vec::new())), Err(TokenError::Audience));
}

#[test]
fn the_edges_of_its_time() {
    let issuer = Issuer::new();
    let token = sign(&claims(), &issuer.key).unwrap();
    let at = |now| issuer.judge_as(&token, None, "10.1.2.3", now).err();
    assert_eq!(at(NOW + 899), None);
    assert_eq!(at(NOW + 900), Some(TokenError::Expired), "to the second");
    assert_eq!(at(NOW - CLOCK_LEEWAY), None);
    assert_eq!(at(NOW - CLOCK_LEEWAY - 1), Some(TokenError::TooEarly));
    assert_eq!(at(0), Some(TokenError::TooEarly));
    assert_eq!(at(u64::MAX), Some(TokenError::Expired));
    assert_eq!(issuer.judge_claims(|c| c.iat = Some(NOW + CLOCK_LEEWAY + 1)), Err(TokenError::TooEarly));
    assert!(issuer.judge_claims(|c| c.exp = NOW + MAX_LIFETIME).is_ok());
    assert_eq!(issuer.judge_claims(|c| c.exp = NOW + MAX_LIFETIME + 1), Err(TokenError::Lifetime));
    let early = |c: &mut Claims| (c.iat, c.exp) = (Some(NOW - 1), NOW + MAX_LIFETIME);
    assert_eq!(issuer.judge_claims(early), Err(TokenError::Lifetime));
    assert!(issuer.judge_claims(|c| c.iat = None).is_ok());
}

#[test]
fn pieces_of_tokens_are_no_token() {
    let issuer = Issuer::new();
    let token = sign(&claims(), &issuer.key).unwrap();
    for length in 0..token.len() {
        assert!(issuer.judge(&token[..length]).is_err(), "{length}");
    }
    for joined in
        [format!("{token}{token}"), format!("{token}.{token}"), format!("{token}."), format!(".{token}")]
    {
        assert!(issuer.judge(&joined).is_err(), "{joined}");
    }
    let (signed, signature) = token.rsplit_once('.').unwrap();
    for signature in [format!("{signature}=="), format!("{signature}A"), String::new()] {
        assert!(issuer.judge(&format!("{signed}.{signature}")).is_err(), "{signature}");
    }
}

#[test]
fn no_other_spelling_of_a_signature_passes() {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let issuer = Issuer::new();
    let token = sign(&claims(), &issuer.key).unwrap();
    // The last character holds bits that say nothing.
    let (rest, last) = token.split_at(token.len() - 1);
    let passing = ALPHABET.chars().filter(|c| issuer.judge(&format!("{rest}{c}")).is_ok());
    assert_eq!(passing.collect::<String>(), last);
}

proptest! {
    #[test]
    fn an_edit_of_any_octet_is_noticed(at in any::<prop::sample::Index>(), to in "[A-Za-z0-9._-]") {
        let issuer = Issuer::new();
        let token = sign(&claims(), &issuer.key).unwrap();
        let at = at.index(token.len());
        prop_assume!(token[at..=at] != to);
        let mut edited = token.clone();
        edited.replace_range(at..=at, &to);
        prop_assert!(issuer.judge(&edited).is_err());
        edited = token.clone();
        edited.insert_str(at, &to);
        prop_assert!(issuer.judge(&edited).is_err());
    }

    #[test]
    fn parts_of_two_tokens_make_no_third(choice in prop::array::uniform3(any::<bool>())) {
        let issuer = Issuer::new();
        let one = issuer.with_header(r#"{"alg":"EdDSA"}"#);
        let mut other = claims();
        other.sub = "other".to_owned();
        let two = sign(&other, &issuer.key).unwrap();
        let parts: Vec<Vec<&str>> = [&one, &two].iter().map(|token| token.split('.').collect()).collect();
        let mixed: Vec<&str> = choice.iter().enumerate().map(|(i, &c)| parts[usize::from(c)][i]).collect();
        let same = choice.iter().all(|&c| c == choice[0]);
        prop_assert_eq!(issuer.judge(&mixed.join(".")).is_ok(), same);
    }

    #[test]
    fn any_text_is_judged_without_a_panic(text in "[A-Za-z0-9._=-]{0,300}") {
        prop_assert!(Issuer::new().judge(&text).is_err());
    }
}
