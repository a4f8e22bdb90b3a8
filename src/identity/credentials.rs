//! What a request's `Proxy-Authorization` holds, read strictly (RFC 9110 section 11.7.2), and what user
//! and password of SOCKS hold (RFC 1929).
//!
//! Splits and decodes; whether the token is good is for [`super::TokenKeys`] to say. Nothing here
//! repairs or guesses, and no error repeats what was sent.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egret_policy::is_sandbox_id;

use super::token::MAX_TOKEN;

/// Most octets of a user, a colon and a token in base64.
const MAX_BASIC: usize = (64 + 1 + MAX_TOKEN).div_ceil(3) * 4;

/// Most octets of a user, and of a password, of SOCKS (RFC 1929 section 2).
const MAX_FIELD: usize = 255;
/// Stands in a user of SOCKS between the sandbox and the beginning of a token that is too long for a
/// password. Neither has this character, and a URL needs no escape for it.
const SPLIT: char = '~';

/// Why credentials can't be read. Safe to record: it repeats nothing of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Unreadable {
    #[error("there is more than one Proxy-Authorization field")]
    Several,
    #[error("the scheme is neither Basic nor Bearer")]
    Scheme,
    #[error("the credentials are too long")]
    TooLong,
    #[error("the value of Basic is not base64 with padding")]
    Base64,
    #[error("the decoded value of Basic is not SANDBOX:TOKEN")]
    Pair,
    #[error("the user is neither SANDBOX nor SANDBOX~TOKEN, with the rest of the token as the password")]
    User,
    #[error("the token has a character that no token has")]
    Characters,
}

/// A token, and the sandbox ID that was sent with it, if one was.
#[derive(PartialEq, Eq)]
pub struct Credentials {
    /// The user part of Basic, or the sandbox of a user of SOCKS.
    pub user: Option<String>,
    /// The token: not empty, characters of compact JWS, at most [`MAX_TOKEN`] of them.
    pub token: String,
}

/// Shows nothing: what it holds is a secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Reads the values of all `Proxy-Authorization` fields of a request; `None` if there are none.
    ///
    /// # Errors
    /// Anything but exactly one readable value.
    pub fn read<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<Option<Self>, Unreadable> {
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(Unreadable::Several);
        }
        let (scheme, mut rest) = split(value, b' ').ok_or(Unreadable::Scheme)?;
        // One space or more (RFC 9110 section 11.4).
        while let Some(fewer) = rest.strip_prefix(b" ") {
            rest = fewer;
        }
        if scheme.eq_ignore_ascii_case(b"Basic") {
            basic(rest).map(Some)
        } else if scheme.eq_ignore_ascii_case(b"Bearer") {
            Ok(Some(Self { user: None, token: token(rest)? }))
        } else {
            Err(Unreadable::Scheme)
        }
    }
}

impl Credentials {
    /// Reads user and password of SOCKS. The user is the sandbox ID and the password the token; of a
    /// token that has no room there, the beginning stands in the user, behind `SANDBOX~`.
    ///
    /// # Errors
    /// They are not that.
    pub fn read_login(user: &[u8], password: &[u8]) -> Result<Self, Unreadable> {
        let user = std::str::from_utf8(user).map_err(|_| Unreadable::User)?;
        let (sandbox, begin) = match user.split_once(SPLIT) {
            // A mark without what it announces.
            Some((_, "")) => return Err(Unreadable::User),
            Some((sandbox, begin)) => (sandbox, begin),
            None => (user, ""),
        };
        if !is_sandbox_id(sandbox) {
            return Err(Unreadable::User);
        }
        if password.is_empty() {
            return Err(Unreadable::Characters);
        }
        let token = token(&[begin.as_bytes(), password].concat())?;
        Ok(Self { user: Some(sandbox.to_owned()), token })
    }
}

/// User and password that [`Credentials::read_login`] reads as this sandbox and this token; `None` if
/// they have no room for it.
#[must_use]
pub fn login_of(sandbox: &str, token: &str) -> Option<(String, String)> {
    let Some(too_long) = token.len().checked_sub(MAX_FIELD).filter(|&more| more > 0) else {
        return Some((sandbox.to_owned(), token.to_owned()));
    };
    let (begin, rest) = token.split_at_checked(too_long)?;
    let user = format!("{sandbox}{SPLIT}{begin}");
    (user.len() <= MAX_FIELD).then(|| (user, rest.to_owned()))
}

/// `SANDBOX:TOKEN` in base64 (RFC 7617 section 2).
fn basic(value: &[u8]) -> Result<Credentials, Unreadable> {
    if value.len() > MAX_BASIC {
        return Err(Unreadable::TooLong);
    }
    let pair = STANDARD.decode(value).map_err(|_| Unreadable::Base64)?;
    let (user, password) = split(&pair, b':').ok_or(Unreadable::Pair)?;
    let user = std::str::from_utf8(user).ok().filter(|user| is_sandbox_id(user)).ok_or(Unreadable::Pair)?;
    Ok(Credentials { user: Some(user.to_owned()), token: token(password)? })
}

/// What stands before and after the first `at`.
fn split(value: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let mut parts = value.splitn(2, |&b| b == at);
    Some((parts.next()?, parts.next()?))
}

fn token(value: &[u8]) -> Result<String, Unreadable> {
    if value.len() > MAX_TOKEN {
        return Err(Unreadable::TooLong);
    }
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let text = std::str::from_utf8(value).ok().filter(|_| !value.is_empty() && value.iter().all(plain));
    text.map(str::to_owned).ok_or(Unreadable::Characters)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn read(values: &[&str]) -> Result<Option<Credentials>, Unreadable> {
        Credentials::read(values.iter().map(|value| value.as_bytes()))
    }

    fn good(user: Option<&str>, token: &str) -> Result<Option<Credentials>, Unreadable> {
        Ok(Some(Credentials { user: user.map(str::to_owned), token: token.to_owned() }))
    }

    #[test]
    fn both_schemes_in_any_case() {
        assert_eq!(read(&[]), Ok(None));
        for scheme in ["Basic", "basic", "BASIC"] {
            // sandbox-a:tok-a
            assert_eq!(read(&[&format!("{scheme} c2FuZGJveC1hOnRvay1h")]), good(Some("sandbox-a"), "tok-a"));
        }
        assert_eq!(read(&["bearer a.b.c"]), good(None, "a.b.c"));
        assert_eq!(read(&["Bearer   a.b.c"]), good(None, "a.b.c"));
    }

    #[test]
    fn everything_else_is_refused() {
        let long = "a".repeat(MAX_TOKEN + 1);
        let basic = |text: &[u8]| format!("Basic {}", STANDARD.encode(text));
        for (value, error) in [
            (String::new(), Unreadable::Scheme),
            ("Basic".to_owned(), Unreadable::Scheme),
            ("Negotiate abc".to_owned(), Unreadable::Scheme),
            ("Basic\tc2FuZGJveC1hOnRvay1h".to_owned(), Unreadable::Scheme),
            ("Basic !!!!".to_owned(), Unreadable::Base64),
            ("Basic c2FuZGJveC1hOnRvay1h x".to_owned(), Unreadable::Base64),
            ("Basic c2FuZGJveC1hOnRvay1h,".to_owned(), Unreadable::Base64),
            // a:b, without padding, and with bits that say nothing.
            ("Basic YTpiYg".to_owned(), Unreadable::Base64),
            ("Basic YTpiYh==".to_owned(), Unreadable::Base64),
            (basic(b"nocolon"), Unreadable::Pair),
            (basic(b":token"), Unreadable::Pair),
            (basic(b"sandbox-a\0:tok-a"), Unreadable::Pair),
            (basic(b"\xff:tok-a"), Unreadable::Pair),
            (basic(b"a:"), Unreadable::Characters),
            (basic(b"a:b:c"), Unreadable::Characters),
            (basic(b"a:b\r\nX: y"), Unreadable::Characters),
            (basic(format!("a:{long}").as_bytes()), Unreadable::TooLong),
            (basic("a".repeat(9000).as_bytes()), Unreadable::TooLong),
            ("Bearer".to_owned(), Unreadable::Scheme),
            ("Bearer ".to_owned(), Unreadable::Characters),
            ("Bearer \ta.b.c".to_owned(), Unreadable::Characters),
            ("Bearer a b".to_owned(), Unreadable::Characters),
            ("Bearer a=".to_owned(), Unreadable::Characters),
            (format!("Bearer {long}"), Unreadable::TooLong),
        ] {
            assert_eq!(read(&[&value]), Err(error), "{value:.60}");
        }
        assert_eq!(read(&["Bearer a.b.c", "Bearer a.b.c"]), Err(Unreadable::Several));
        assert_eq!(read(&["Bearer a.b.c", ""]), Err(Unreadable::Several));
    }

    #[test]
    fn logins() {
        let of = |user: &str, password: &str| Credentials::read_login(user.as_bytes(), password.as_bytes());
        let good = |user: &str, token: &str| good(Some(user), token).map(Option::unwrap);
        assert_eq!(of("box", "a.b.c"), good("box", "a.b.c"));
        assert_eq!(of("box~a.", "b.c"), good("box", "a.b.c"));
        for (user, password, error) in [
            ("", "a.b.c", Unreadable::User),
            ("~a", "b.c", Unreadable::User),
            ("box~", "a.b.c", Unreadable::User),
            ("box:a", "b.c", Unreadable::User),
            ("b\0x", "a.b.c", Unreadable::User),
            ("b\u{e4}", "a.b.c", Unreadable::User),
            ("box~a~b", "c", Unreadable::Characters),
            ("box", "", Unreadable::Characters),
            ("box~a.b.c", "", Unreadable::Characters),
            ("box", "a b", Unreadable::Characters),
        ] {
            assert_eq!(of(user, password), Err(error), "{user} {password}");
        }
        assert_eq!(Credentials::read_login(b"\xff", b"a"), Err(Unreadable::User));
    }

    #[test]
    fn nothing_of_them_is_shown() {
        let credentials = read(&["Basic c2FuZGJveC1hOnRvay1h"]).unwrap().unwrap();
        assert_eq!(format!("{credentials:?}"), "Credentials");
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_a_panic(value in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Credentials::read([value.as_slice()].into_iter());
        }

        #[test]
        fn what_is_sent_is_what_is_read(user in "[A-Za-z0-9._-]{1,64}", token in "[A-Za-z0-9._-]{1,300}") {
            let value = format!("Basic {}", STANDARD.encode(format!("{user}:{token}")));
            prop_assert_eq!(read(&[&value]), good(Some(&user), &token));
            prop_assert_eq!(read(&[&format!("Bearer {token}")]), good(None, &token));
        }

        #[test]
        fn any_login_is_read_without_a_panic(
            user in proptest::collection::vec(any::<u8>(), 0..=255),
            password in proptest::collection::vec(any::<u8>(), 0..=255),
        ) {
            let _ = Credentials::read_login(&user, &password);
        }

        #[test]
        fn every_login_that_is_made_is_read(user in "[A-Za-z0-9._-]{1,64}", token in "[A-Za-z0-9._-]{1,600}") {
            let Some((first, second)) = login_of(&user, &token) else {
                prop_assert!(user.len() + 1 + token.len() > 2 * MAX_FIELD);
                return Ok(());
            };
            prop_assert!(first.len() <= MAX_FIELD && (1..=MAX_FIELD).contains(&second.len()));
            let read = Credentials::read_login(first.as_bytes(), second.as_bytes());
            prop_assert_eq!(read.map(Some), good(Some(&user), &token));
        }
    }
}
