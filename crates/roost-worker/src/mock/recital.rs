//! Answers that prove which prompt was read.

use roost_kv::hash;

use super::TextCodec;

/// The answer to a prompt of these ids: `length` characters, 0 to f, each of which depends on all ids and on its place.
pub fn recital(prompt: &[u32], length: usize) -> String {
    let name = hash::block_hashes(prompt, u32::try_from(prompt.len().max(1)).unwrap_or(u32::MAX), 0);
    let mut random = fastrand::Rng::with_seed(name.first().map_or(0, |hash| hash.0));
    (0..length).map(|_| char::from_digit(random.u32(0..16), 16).unwrap_or('0')).collect()
}

/// The ids of what is still to be said when a request brings `ids`.
pub(super) fn rest(ids: &[u32], mark: &[u32], length: usize, codec: &TextCodec) -> Vec<u32> {
    let marks = ids.windows(mark.len().max(1)).rposition(|window| window == mark);
    let prompt = marks.map_or(ids.len(), |at| at + mark.len());
    let all = codec.encode(&recital(&ids[..prompt], length));
    all.get(ids.len() - prompt..).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_on_where_it_was() {
        let codec = TextCodec::tiny_chat();
        let (prompt, mark) = (codec.encode("question: answer: "), codec.encode("answer: "));
        let whole = recital(&prompt, 40);
        assert_eq!(whole.len(), 40);
        assert_eq!(rest(&prompt, &mark, 40, &codec), codec.encode(&whole));
        let halfway = [prompt.clone(), codec.encode(&whole[..15])].concat();
        assert_eq!(rest(&halfway, &mark, 40, &codec), codec.encode(&whole[15..]));
        let done = [prompt.clone(), codec.encode(&whole)].concat();
        assert_eq!(rest(&done, &mark, 40, &codec), [0; 0]);
        let other = codec.encode("questio: answer: ");
        assert_ne!(recital(&other, 40), whole);
    }
}
