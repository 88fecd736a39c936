//! The new end of an event that repeats everything before it: found from behind, so that its old part costs no parsing.

use memchr::memmem;
use roost_wire::message::OutputTokens;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Between ids and facts. Cannot occur inside of a JSON string, where every quote is escaped.
const SEAM: &[u8] = b"],\"meta_info\":{";
/// An array of ids begins so.
const IDS: &[u8] = b"\"output_ids\":[";

/// Splits an event as servers write it, `{"text":…,"output_ids":[…],"meta_info":{…},…}`: returns everything up to the last id
/// and leaves the rest in `rest` as an object. `None` for events of another order.
pub(super) fn split<'a>(event: &'a [u8], rest: &mut Vec<u8>) -> Option<&'a [u8]> {
    let seam = memmem::rfind(event, SEAM)?;
    let ids = &event[..seam];
    // The array in front of the seam is that of the ids: digits and commas back to its name.
    let open = memchr::memrchr(b'[', ids)?;
    let is_list = ids[open + 1..].iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b' '));
    if !is_list || !ids[..=open].ends_with(IDS) {
        return None;
    }
    rest.clear();
    rest.push(b'{');
    rest.extend_from_slice(&event[seam + 2..]);
    Some(ids)
}

/// The last `count` ids of a list that ends without its bracket; `None` if there are fewer.
pub(super) fn ids(list: &[u8], count: usize) -> Option<OutputTokens> {
    if count == 0 {
        return Some(OutputTokens::default());
    }
    // Where the first of them begins: behind the comma in front of it, or behind the bracket.
    let mut commas = memchr::memrchr_iter(b',', list);
    let open = memchr::memrchr(b'[', list)?;
    let start = match commas.nth(count - 1) {
        Some(comma) if comma > open => comma + 1,
        _ => open + 1,
    };
    let numbers = list[start..].split(|&byte| byte == b',');
    let ids: Option<OutputTokens> =
        numbers.map(|number| std::str::from_utf8(number.trim_ascii()).ok()?.parse::<u32>().ok()).collect();
    ids.filter(|ids| ids.len() == count)
}

/// The last `count` entries of an array.
///
/// # Errors
/// They are of another shape.
pub(super) fn entries<T: DeserializeOwned>(
    raw: &RawValue,
    count: usize,
) -> Result<Vec<T>, serde_json::Error> {
    let text = raw.get();
    if text == "null" || count == 0 {
        return Ok(Vec::new());
    }
    match last_entries(text.as_bytes(), count) {
        Some(start) => serde_json::from_str(&format!("[{}", &text[start..])),
        None => {
            let mut all: Vec<T> = serde_json::from_str(text)?;
            Ok(all.split_off(all.len().saturating_sub(count)))
        }
    }
}

/// Where the last `count` entries of an array begin. `None` if there are not more, or if brackets may be part of a text.
fn last_entries(array: &[u8], count: usize) -> Option<usize> {
    let (mut depth, mut left) = (0usize, count);
    for (at, &byte) in array.iter().enumerate().rev() {
        match byte {
            b']' => depth += 1,
            b'[' => depth = depth.checked_sub(1)?,
            b'"' => return None,
            b',' if depth == 1 => {
                left -= 1;
                if left == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ids_of_a_list() {
        let some = |ids: &[u32]| Some(ids.to_vec());
        let last = |list: &str, count| ids(list.as_bytes(), count).map(|ids| ids.to_vec());
        assert_eq!(last("[1,22,333", 2), some(&[22, 333]));
        assert_eq!(last("[1,22,333", 3), some(&[1, 22, 333]));
        assert_eq!(last("[1,22,333", 4), None);
        assert_eq!(last("{\"x\":[9,8],\"output_ids\":[7", 1), some(&[7]));
        assert_eq!(last("{\"x\":[9,8],\"output_ids\":[7", 2), None);
        assert_eq!(last("[", 1), None);
        assert_eq!(last("[", 0), some(&[]));
        assert_eq!(last("[1, 2", 2), some(&[1, 2]));
        assert_eq!(last("[1,x", 1), None);
        assert_eq!(last("[99999999999", 1), None);
    }

    #[test]
    fn only_events_of_the_usual_order_are_split() {
        let mut rest = Vec::new();
        let event = br#"{"text":"],\"meta_info\":{","output_ids":[1,2],"meta_info":{"a":1},"index":3}"#;
        assert_eq!(
            split(event, &mut rest),
            Some(&event[..event.len() - br#"],"meta_info":{"a":1},"index":3}"#.len()])
        );
        assert_eq!(rest, br#"{"meta_info":{"a":1},"index":3}"#);
        for other in [
            &br#"{"output_ids":[1,2],"text":"x","meta_info":{}}"#[..],
            br#"{"meta_info":{"a":1},"output_ids":[1,2]}"#,
            br#"{"output_ids":[1],"other":[2],"meta_info":{}}"#,
            br#"{"error":{"message":"x"}}"#,
        ] {
            assert_eq!(split(other, &mut rest), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn the_last_entries_of_an_array() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        type Entry = (f64, u32, Option<String>);
        let list = raw("[[-1.5,1,null],[-2.5,2,null],[-3.5,3,null]]");
        let last: Vec<Entry> = entries(&list, 2).unwrap();
        assert_eq!(last, [(-2.5, 2, None), (-3.5, 3, None)]);
        assert_eq!(entries::<Entry>(&list, 9).unwrap().len(), 3);
        assert_eq!(entries::<Entry>(&list, 0).unwrap().len(), 0);
        let named = raw("[[-1.5,1,\"],[\"],[-2.5,2,\"[,\"]]");
        assert_eq!(entries::<Entry>(&named, 1).unwrap(), [(-2.5, 2, Some("[,".into()))]);
        assert_eq!(entries::<Entry>(&raw("null"), 1).unwrap().len(), 0);
    }
}
