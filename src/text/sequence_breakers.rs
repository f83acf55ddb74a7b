//! Where repetitions are cut, from text to tokens.

use std::collections::HashMap;

use super::tokenizer::Tokenizer;

/// Longest rest of a breaker, in tokens, that is looked for behind the token it begins in.
const MAX_FOLLOWERS: usize = 20;

/// Each token that has one of `breakers` in it, with no followers; and each that ends with the
/// beginning of one, with the tokens of its rest. As llama.cpp finds them.
pub fn sequence_breakers(
    tokenizer: &Tokenizer,
    breakers: &[String],
) -> HashMap<u32, Vec<Vec<u32>>> {
    let mut found: HashMap<u32, Vec<Vec<u32>>> = HashMap::new();
    for id in (0..).take(tokenizer.vocab_size()) {
        let token = tokenizer.token_bytes(id);
        let followers = breakers.iter().filter(|breaker| !breaker.is_empty());
        let followers = followers.flat_map(|breaker| followers_of(&token, breaker, tokenizer));
        let mut followers: Vec<Vec<u32>> = followers.collect();
        followers.sort();
        followers.dedup();
        if !followers.is_empty() {
            found.insert(id, followers);
        }
    }
    found
}

/// What must follow `token` for `breaker` to be whole, for each place where it may begin.
fn followers_of(token: &[u8], breaker: &str, tokenizer: &Tokenizer) -> Vec<Vec<u32>> {
    let whole = breaker.as_bytes();
    if token.windows(whole.len()).any(|window| window == whole) {
        return vec![Vec::new()];
    }
    let longest = token.len().min(whole.len() - 1);
    let begun = (1..=longest).filter(|length| token.ends_with(&whole[..*length]));
    // A rest that begins inside a character can't be tokenized as text.
    let rests = begun.filter_map(|length| breaker.get(length..));
    let followers = rests.filter_map(|rest| tokenizer.encode_plain(rest).ok());
    followers.map(|ids| ids.into_iter().take(MAX_FOLLOWERS).collect()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decoder::char_of_byte;
    use crate::tokenizer_config::TokenizerConfig;

    fn tokenizer(words: &[&str]) -> Tokenizer {
        let bytes = (0..=255u8).map(|byte| char_of_byte(byte).to_string());
        let tokens = bytes.chain(words.iter().map(|word| (*word).to_owned())).zip(0..);
        let vocab: HashMap<String, u32> = tokens.collect();
        let json = json!({"version": "1.0", "added_tokens": [],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": false, "use_regex": false},
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                "use_regex": false},
            "model": {"type": "BPE", "vocab": vocab, "merges": []}});
        Tokenizer::from_json(json.to_string().as_bytes(), &TokenizerConfig::default()).unwrap()
    }

    #[test]
    fn whole_and_begun_breakers_are_found() {
        let tokenizer = tokenizer(&["a:b", "::", "end", "enderman", "des"]);
        let id = |token: &str| tokenizer.token_id(token).unwrap();
        let found = sequence_breakers(&tokenizer, &[":".to_owned(), "ender".to_owned()]);
        let whole = [Vec::<u32>::new()];
        assert_eq!(found[&id(":")], whole);
        assert_eq!(found[&id("a:b")], whole);
        assert_eq!(found[&id("::")], whole);
        assert_eq!(found[&id("enderman")], whole);
        assert_eq!(found[&id("end")], [tokenizer.encode_plain("er").unwrap()]);
        assert_eq!(found[&id("e")], [tokenizer.encode_plain("nder").unwrap()]);
        assert!(!found.contains_key(&id("n")) && !found.contains_key(&id("des")));
    }
}
