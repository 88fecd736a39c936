//! An operator, an account and a user as NATS's decentralised authentication knows them: keys and signed claims.

use anyhow::{Result, anyhow};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const SEED: u8 = 18 << 3;

/// What a key is for, as the first byte of its text.
#[derive(Clone, Copy)]
enum Kind {
    Operator = 14 << 3,
    Account = 0,
    User = 20 << 3,
}

struct Key {
    kind: Kind,
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

impl Key {
    fn make(kind: Kind) -> Result<Self> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| anyhow!("no randomness"))?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| anyhow!("no key"))?;
        Ok(Self { kind, seed, pair })
    }

    fn public(&self) -> String {
        text(&[&[self.kind as u8], self.pair.public_key().as_ref()].concat())
    }

    fn seed(&self) -> String {
        let kind = self.kind as u8;
        text(&[&[SEED | kind >> 5, (kind & 31) << 3], &self.seed[..]].concat())
    }

    /// Signs what it says about `subject`.
    fn claim(&self, subject: &Self, name: &str, about: &Value) -> String {
        let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
        let claims = json!({"jti": name, "iat": 1_700_000_000, "iss": self.public(), "sub": subject.public(),
            "name": name, "nats": about});
        let encode = |value: &Value| digits(value.to_string().as_bytes(), BASE64_URL, 6);
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self.pair.sign(signed.as_bytes());
        format!("{signed}.{}", digits(signature.as_ref(), BASE64_URL, 6))
    }
}

/// A server's configuration that trusts a new operator, and the credentials file of a user of an account of it.
///
/// # Errors
/// No key can be made.
pub fn credentials() -> Result<(String, String)> {
    let (operator, account, user) =
        (Key::make(Kind::Operator)?, Key::make(Kind::Account)?, Key::make(Kind::User)?);
    let of_operator = operator.claim(&operator, "operator", &json!({"type": "operator", "version": 2}));
    let limits = json!({"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1});
    let about = json!({"type": "account", "version": 2, "limits": limits});
    let of_account = operator.claim(&account, "fleet", &about);
    let about = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
    let of_user = account.claim(&user, "frontend", &about);
    let server = format!(
        "operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_account} }}\n",
        account.public()
    );
    let file = format!(
        "-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n\
         ************************* IMPORTANT *************************\n\
         NKEY Seed printed below can be used to sign and prove identity.\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        user.seed()
    );
    Ok((server, file))
}

/// Bytes with their checksum (CRC-16/XMODEM) in base 32.
fn text(bytes: &[u8]) -> String {
    let mut crc = 0u16;
    for &byte in bytes {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    digits(&[bytes, &crc.to_le_bytes()].concat(), BASE32, 5)
}

/// Digits of `bits` bits each, without padding.
fn digits(bytes: &[u8], alphabet: &[u8], bits: usize) -> String {
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1));
    let count = (bytes.len() * 8).div_ceil(bits);
    let digit = |n: usize| (n * bits..(n + 1) * bits).fold(0, |value, at| value << 1 | bit(at));
    (0..count).map(|n| char::from(alphabet[digit(n)])).collect()
}
