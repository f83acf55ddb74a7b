//! A sound as the engine gets it: its features, how many tokens it takes, and its digest.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::speech::features::Features;

/// A sound that was made ready for an encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    features: Features,
    heard: usize,
    tokens: usize,
    digest: [u8; 16],
}

impl Sound {
    /// A sound of so many tokens, of whose features the first `heard` vectors are of the sound itself and
    /// not of silence behind it.
    pub fn new(features: Features, heard: usize, tokens: usize) -> Self {
        let mut hasher = Sha256::new();
        // Pictures have digests of other texts.
        hasher.update(b"sound");
        for size in [features.mels(), features.frames(), heard, tokens] {
            hasher.update((size as u64).to_le_bytes());
        }
        for log in features.logs() {
            hasher.update(log.to_le_bytes());
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&hasher.finalize()[..16]);
        Self { features, heard, tokens, digest }
    }

    /// Log-mel vectors, a hundred a second.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// How many of the vectors are of the sound itself.
    pub fn heard(&self) -> usize {
        self.heard
    }

    /// Tokens that it takes in a prompt.
    pub fn num_tokens(&self) -> usize {
        self.tokens
    }

    /// SHA-256 of all that is heard, cut to 128 bits: equal digests mean equal sounds.
    pub fn digest(&self) -> [u8; 16] {
        self.digest
    }
}

/// A sound and its place in a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedSound {
    /// The position of its first token.
    pub offset: usize,
    /// What is heard there.
    pub sound: Arc<Sound>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speech::features::Listener;

    #[test]
    fn what_is_heard_decides_the_digest() {
        let features = |loudness: f32| {
            let mut listener = Listener::new(4);
            let samples: Vec<f32> = (0..1600_u16).map(|at| f32::from(at % 40) * loudness).collect();
            listener.push(&samples);
            listener.finish()
        };
        let digest =
            |loudness, heard, tokens| Sound::new(features(loudness), heard, tokens).digest();
        let one = digest(0.01, 10, 5);
        assert_eq!(one, digest(0.01, 10, 5));
        assert_ne!(one, digest(0.02, 10, 5), "louder");
        assert_ne!(one, digest(0.01, 9, 5), "shorter");
        assert_ne!(one, digest(0.01, 10, 4), "of fewer tokens");
    }
}
