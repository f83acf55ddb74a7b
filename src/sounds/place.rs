//! The way of sounds into a prompt: a template leaves one token for each sound, in whose place the text has as
//! many as the sound takes; tokenized, they are where the sound is.

use std::sync::Arc;

use super::sound::{PlacedSound, Sound};

/// The text with as many tokens for each sound as it takes, where it has one for each. Fails with the number
/// of places there are, if it is not that of the sounds.
pub fn expand(text: &str, sounds: &[Arc<Sound>], token: &str) -> Result<String, usize> {
    let gaps = if token.is_empty() { 0 } else { text.matches(token).count() };
    if gaps != sounds.len() {
        return Err(gaps);
    }
    let mut between = text.split(token);
    let mut expanded = between.next().unwrap_or_default().to_owned();
    for (sound, behind) in sounds.iter().zip(between) {
        expanded.push_str(&token.repeat(sound.num_tokens()));
        expanded.push_str(behind);
    }
    Ok(expanded)
}

/// Where the sounds are among the ids of an expanded text; `None` if `token` stands there more often or less
/// often than they take tokens.
pub fn place(ids: &[u32], token: u32, sounds: &[Arc<Sound>]) -> Option<Vec<PlacedSound>> {
    let mut tokens = ids.iter().enumerate().filter(|(_, id)| **id == token).map(|(at, _)| at);
    let mut placed = Vec::with_capacity(sounds.len());
    for sound in sounds {
        let offset = tokens.next()?;
        for behind in 1..sound.num_tokens() {
            if tokens.next()? != offset + behind {
                return None;
            }
        }
        placed.push(PlacedSound { offset, sound: Arc::clone(sound) });
    }
    tokens.next().is_none().then_some(placed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speech::features::Features;

    fn sounds(tokens: &[usize]) -> Vec<Arc<Sound>> {
        let sound = |tokens: &usize| Arc::new(Sound::new(Features::default(), 0, *tokens));
        tokens.iter().map(sound).collect()
    }

    #[test]
    fn each_place_becomes_as_many_tokens_as_its_sound_takes() {
        assert_eq!(expand("a<s>b<s>", &sounds(&[2, 1]), "<s>").unwrap(), "a<s><s>b<s>");
        assert_eq!(expand("<s>", &sounds(&[2, 1]), "<s>"), Err(1));
        assert_eq!(expand("none", &sounds(&[1]), ""), Err(0));
    }

    #[test]
    fn tokens_are_those_of_the_sounds_in_order() {
        let offsets = |ids: &[u32], tokens: &[usize]| {
            let placed = place(ids, 9, &sounds(tokens))?;
            Some(placed.iter().map(|placed| placed.offset).collect::<Vec<_>>())
        };
        assert_eq!(offsets(&[1, 9, 9, 3, 9], &[2, 1]), Some(vec![1, 4]));
        assert_eq!(offsets(&[9, 9, 9], &[2, 1]), Some(vec![0, 2]));
        assert_eq!(offsets(&[9, 1, 9], &[2]), None, "torn");
        assert_eq!(offsets(&[9, 9], &[1]), None, "too many");
        assert_eq!(offsets(&[9], &[2]), None, "too few");
    }
}
