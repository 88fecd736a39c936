//! Proving who we are with an Ed25519 key, as NATS writes such keys down.

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::{NatsAuth, NatsError};

/// Seeds begin with `S`, those of users with `SU`.
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The fields of CONNECT that say who we are.
pub(super) fn identity(auth: &NatsAuth, nonce: Option<&str>) -> Result<Value, NatsError> {
    let refused = |reason: &str| NatsError::Credentials(reason.to_owned());
    Ok(match auth {
        NatsAuth::None => json!({}),
        NatsAuth::UserPassword(user, password) => json!({"user": user, "pass": password}),
        NatsAuth::Token(token) => json!({"auth_token": token}),
        NatsAuth::Nkey(seed) => {
            let key = key_of(seed)?;
            let nonce = nonce.ok_or_else(|| refused("the server asks for no signature of the key"))?;
            json!({"nkey": public(&key), "sig": base64_url(key.sign(nonce.as_bytes()).as_ref())})
        }
        NatsAuth::Credentials(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                NatsError::Credentials(format!("cannot read {}: {error}", path.display()))
            })?;
            let jwt = section(&text, "JWT").ok_or_else(|| refused("the credentials file has no JWT"))?;
            let seed = section(&text, "SEED").ok_or_else(|| refused("the credentials file has no seed"))?;
            let key = key_of(seed)?;
            let sig = nonce.map(|nonce| base64_url(key.sign(nonce.as_bytes()).as_ref()));
            json!({"jwt": jwt, "sig": sig})
        }
    })
}

/// The line between `-----BEGIN … KIND-----` and the next dashes.
fn section<'a>(text: &'a str, kind: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("-----BEGIN") && line.trim_end_matches('-').ends_with(kind))?;
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with('-'))
}

fn key_of(seed: &str) -> Result<Ed25519KeyPair, NatsError> {
    let wrong = || NatsError::Credentials("the key is not a seed of a NATS user (SU…)".to_owned());
    let bytes = from_base32(seed.trim()).ok_or_else(wrong)?;
    let (body, sum) = bytes.split_last_chunk::<2>().ok_or_else(wrong)?;
    let is_user_seed =
        body.len() == 34 && body[0] & 0xf8 == SEED && (body[0] & 7) << 5 | (body[1] & 0xf8) >> 3 == USER;
    if !is_user_seed || crc16(body).to_le_bytes() != *sum {
        return Err(wrong());
    }
    Ed25519KeyPair::from_seed_unchecked(&body[2..]).map_err(|_| wrong())
}

/// The public key as NATS writes it: `U…`.
fn public(key: &Ed25519KeyPair) -> String {
    let mut bytes = vec![USER];
    bytes.extend_from_slice(key.public_key().as_ref());
    bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
    to_text(&bytes, BASE32, 5)
}

fn base64_url(bytes: &[u8]) -> String {
    to_text(bytes, BASE64_URL, 6)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8)
            .fold(crc ^ u16::from(byte) << 8, |crc, _| crc << 1 ^ if crc & 0x8000 != 0 { 0x1021 } else { 0 })
    })
}

/// Writes bytes in an alphabet of 2^`bits` signs, without padding.
fn to_text(bytes: &[u8], alphabet: &[u8], bits: u32) -> String {
    let (mut text, mut held, mut count) = (String::new(), 0u32, 0);
    let mask = (1 << bits) - 1;
    for &byte in bytes {
        held = (held << 8 | u32::from(byte)) & 0xffff;
        count += 8;
        while count >= bits {
            count -= bits;
            text.push(char::from(alphabet[(held >> count & mask) as usize]));
        }
    }
    if count > 0 {
        text.push(char::from(alphabet[(held << (bits - count) & mask) as usize]));
    }
    text
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut count) = (Vec::new(), 0u32, 0);
    for sign in text.bytes() {
        let value = BASE32.iter().position(|known| *known == sign)?;
        held = (held << 5 | u32::try_from(value).ok()?) & 0xffff;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((held >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}
