//! Ed25519 keys as PEM files hold them: public ones as SubjectPublicKeyInfo, private ones as
//! PKCS#8 (RFC 8410). No other kind of key is read, so no token can choose its algorithm.

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, ParsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What stands before the 32 octets of the key: the algorithm and the type of the value.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const PUBLIC: &str = "PUBLIC KEY";
const PRIVATE: &str = "PRIVATE KEY";
/// Characters in a line of PEM (RFC 7468 section 2).
const PEM_LINE: usize = 64;

/// Why a key can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not one PEM block with the right label.
    #[error("it is not a PEM file that begins with -----BEGIN {0}-----")]
    NotPem(&'static str),
    /// Some other key, or a damaged one.
    #[error("it holds no Ed25519 key")]
    NotEd25519,
    /// The library has no random octets, or refused to work.
    #[error("no key could be made")]
    Failed,
}

/// A key that signatures are verified with.
#[derive(Clone)]
pub struct PublicKey {
    bytes: [u8; 32],
    parsed: ParsedPublicKey,
}

impl PublicKey {
    /// Reads a PEM file's text.
    ///
    /// # Errors
    /// It is not the public key of Ed25519.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = from_pem(text, PUBLIC)?;
        let bytes = der.strip_prefix(&SPKI_PREFIX).ok_or(KeyError::NotEd25519)?;
        Self::from_bytes(bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        let parsed = ParsedPublicKey::new(&ED25519, bytes).map_err(|_| KeyError::NotEd25519)?;
        let bytes = bytes.try_into().map_err(|_| KeyError::NotEd25519)?;
        Ok(Self { bytes, parsed })
    }

    /// The 32 octets of the key.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The text of a PEM file.
    #[must_use]
    pub fn to_pem(&self) -> String {
        to_pem(&[SPKI_PREFIX.as_slice(), &self.bytes].concat(), PUBLIC)
    }

    /// Did the holder of the private key sign this message?
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.parsed.verify_sig(message, signature).is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey")
    }
}

/// A key that tokens are signed with. The proxy has none: only the commands that make tokens do.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Makes a new one.
    ///
    /// # Errors
    /// The system gives no random octets.
    pub fn generate() -> Result<Self, KeyError> {
        Ed25519KeyPair::generate().map(Self).map_err(|_| KeyError::Failed)
    }

    /// Reads a PEM file's text.
    ///
    /// # Errors
    /// It is not a private key of Ed25519.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = from_pem(text, PRIVATE)?;
        Ed25519KeyPair::from_pkcs8(&der).map(Self).map_err(|_| KeyError::NotEd25519)
    }

    /// The text of a PEM file, as OpenSSL writes and reads it.
    ///
    /// # Errors
    /// The library refuses to encode it.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        let der = self.0.to_pkcs8v1().map_err(|_| KeyError::Failed)?;
        Ok(to_pem(der.as_ref(), PRIVATE))
    }

    /// The public half.
    ///
    /// # Errors
    /// The library refuses its own key.
    pub fn public(&self) -> Result<PublicKey, KeyError> {
        PublicKey::from_bytes(self.0.public_key().as_ref())
    }

    /// Signs a message.
    ///
    /// # Errors
    /// The library refuses to.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.0.try_sign(message).map(|signature| signature.as_ref().to_vec()).map_err(|_| KeyError::Failed)
    }
}

fn from_pem(text: &str, label: &'static str) -> Result<Vec<u8>, KeyError> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let inside = text.trim().strip_prefix(&begin).and_then(|rest| rest.strip_suffix(&end));
    let base64: String = inside.ok_or(KeyError::NotPem(label))?.split_ascii_whitespace().collect();
    STANDARD.decode(base64).map_err(|_| KeyError::NotPem(label))
}

fn to_pem(der: &[u8], label: &str) -> String {
    let base64 = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in base64.as_bytes().chunks(PEM_LINE) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The examples of RFC 8410 section 10.
    const FOREIGN_PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC";
    const FOREIGN_PUBLIC: &str = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";

    fn pem(base64: &str, label: &str) -> String {
        format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n")
    }

    #[test]
    fn keys_survive_their_files() {
        let key = SigningKey::generate().unwrap();
        let again = SigningKey::from_pem(&key.to_pem().unwrap()).unwrap();
        let public = PublicKey::from_pem(&key.public().unwrap().to_pem()).unwrap();
        let signature = again.sign(b"message").unwrap();
        assert!(public.verifies(b"message", &signature));
        assert!(!public.verifies(b"massage", &signature));
        assert!(!SigningKey::generate().unwrap().public().unwrap().verifies(b"message", &signature));
    }

    #[test]
    fn keys_of_others_are_read() {
        let private = pem(FOREIGN_PRIVATE, PRIVATE);
        let key = SigningKey::from_pem(&private).unwrap();
        assert_eq!(key.public().unwrap().to_pem(), pem(FOREIGN_PUBLIC, PUBLIC));
        assert_eq!(key.to_pem().unwrap(), private);
        let windows = pem(FOREIGN_PUBLIC, PUBLIC).replace('\n', "\r\n");
        assert_eq!(PublicKey::from_pem(&windows).unwrap().bytes(), key.public().unwrap().bytes());
    }

    #[test]
    fn anything_else_is_refused() {
        let key = SigningKey::generate().unwrap();
        let (private, public) = (key.to_pem().unwrap(), key.public().unwrap().to_pem());
        assert_eq!(PublicKey::from_pem(&private).unwrap_err(), KeyError::NotPem(PUBLIC));
        assert_eq!(PublicKey::from_pem(&format!("{public}{public}")).unwrap_err(), KeyError::NotPem(PUBLIC));
        assert_eq!(PublicKey::from_pem("").unwrap_err(), KeyError::NotPem(PUBLIC));
        let relabelled = private.replace(PRIVATE, PUBLIC);
        assert_eq!(PublicKey::from_pem(&relabelled).unwrap_err(), KeyError::NotEd25519);
        let short = to_pem(&[SPKI_PREFIX.as_slice(), &[1; 31]].concat(), PUBLIC);
        assert_eq!(PublicKey::from_pem(&short).unwrap_err(), KeyError::NotEd25519);
        assert!(SigningKey::from_pem(&public).is_err());
    }
}
