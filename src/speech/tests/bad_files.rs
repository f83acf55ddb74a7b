//! Files that are not what they should be: an error that says so, and memory that stays small.

use bytes::Bytes;

use super::{file, model, options, transcribe};
use crate::speech::audio::{AudioError, SoundFile};
use crate::speech::error::SpeechError;

/// A wav file of 32-bit floats, or of 16-bit integers without any.
fn wav(rate: u32, channels: u16, floats: Option<&[f32]>, claimed: u32) -> Bytes {
    let bits: u16 = if floats.is_some() { 32 } else { 16 };
    let kind: u16 = if floats.is_some() { 3 } else { 1 };
    let data: Vec<u8> = floats.unwrap_or(&[]).iter().flat_map(|x| x.to_le_bytes()).collect();
    let block = channels.wrapping_mul(bits / 8);
    let mut file = Vec::new();
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&claimed.saturating_add(36).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&16_u32.to_le_bytes());
    file.extend_from_slice(&kind.to_le_bytes());
    file.extend_from_slice(&channels.to_le_bytes());
    file.extend_from_slice(&rate.to_le_bytes());
    file.extend_from_slice(&rate.wrapping_mul(u32::from(block)).to_le_bytes());
    file.extend_from_slice(&block.to_le_bytes());
    file.extend_from_slice(&bits.to_le_bytes());
    file.extend_from_slice(b"data");
    file.extend_from_slice(&claimed.to_le_bytes());
    file.extend_from_slice(&data);
    file.into()
}

fn of(floats: &[f32]) -> Bytes {
    wav(16_000, 1, Some(floats), u32::try_from(floats.len() * 4).unwrap())
}

/// What is said of a file.
fn refused(file: Bytes) -> String {
    match transcribe(&model("tiny"), file, &options()) {
        Err(SpeechError::Audio(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_sound_is_refused_by_its_first_bytes() {
    assert_eq!(refused(Bytes::new()), "the file is empty");
    for bytes in [&b"hello"[..], &[0; 4096], b"\x89PNG\r\n\x1a\n0000", b"RIFF", b"fLaC"] {
        let error = refused(Bytes::copy_from_slice(bytes));
        assert!(error.contains("no format that is read here: wav"), "{error}");
    }
    let text = "This is a text. ".repeat(10_000);
    let error = refused(text.into());
    assert!(error.contains("no format"), "{error}");
}

#[test]
fn too_little_and_too_much_are_refused_by_the_number() {
    assert!(refused(of(&[0.5])).contains("0.0001 s of sound, it must have at least 0.1 s"));
    assert!(refused(of(&[])).contains("it must have at least 0.1 s"));
    // The test's model takes ten seconds.
    let long = refused(of(&vec![0.1; 16_000 * 11]));
    assert!(long.contains("more than 10 s of sound, at most 10 s are taken"), "{long}");
}

#[test]
fn ten_hours_that_compress_well_never_are_in_memory() {
    // 16 MiB of silence at 1000 Hz and 8 bits would be 4.6 hours; none of it is kept.
    let file = wav(1000, 1, None, 0);
    let mut file = file.to_vec();
    file[34..36].copy_from_slice(&8_u16.to_le_bytes());
    file[32..34].copy_from_slice(&1_u16.to_le_bytes());
    file[40..44].copy_from_slice(&(16_u32 << 20).to_le_bytes());
    file[4..8].copy_from_slice(&((16_u32 << 20) + 36).to_le_bytes());
    file.extend(std::iter::repeat_n(128_u8, 16 << 20));
    let error = refused(file.into());
    assert!(error.contains("more than 1"), "{error}");
}

#[test]
fn numbers_that_are_none_are_refused_by_their_place() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut samples = vec![0.1; 16_000];
        samples[8000] = bad;
        let error = refused(of(&samples));
        assert!(error.contains("no finite number, after 0.500 s"), "{error}");
    }
}

#[test]
fn rates_and_channels_of_no_recording_are_refused() {
    let samples = [0.1; 64];
    let error = refused(wav(0, 1, Some(&samples), 256));
    assert!(!error.is_empty());
    let error = refused(wav(4_000_000_000, 1, Some(&samples), 256));
    assert!(error.contains("4000000000 samples a second, it must have 1000 to 384000"), "{error}");
    for channels in [0, 33, 6000] {
        let error = refused(wav(16_000, channels, Some(&samples), 256));
        assert!(!error.contains("panic"), "{channels}: {error}");
    }
}

#[test]
fn a_length_that_is_a_lie_changes_nothing() {
    let samples = vec![0.1; 16_000];
    // Too long, as recorders write it that don't know, and too short.
    for claimed in [u32::MAX, 64_000 * 100, 0] {
        let file = wav(16_000, 1, Some(&samples), claimed);
        let mut sound = match SoundFile::open(file) {
            Ok(sound) => sound,
            Err(error) => panic!("{claimed}: {error}"),
        };
        let mut count = 0;
        while let Some(piece) = sound.read().unwrap() {
            count += piece.samples.len();
        }
        assert!(count <= 16_000, "{claimed}: {count}");
        if claimed > 64_000 {
            assert_eq!(count, 16_000, "{claimed}");
        }
    }
}

#[test]
fn a_file_that_breaks_off_is_heard_as_far_as_it_goes_or_refused() {
    for name in ["said.flac", "said.mp3", "said.ogg", "said.m4a", "said_8k.wav", "said.aiff"] {
        let whole = file(name);
        for part in [whole.len() / 2, whole.len() - 3] {
            let cut = whole.slice(..part);
            let Ok(mut sound) = SoundFile::open(cut) else { continue };
            loop {
                match sound.read() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => {
                        assert!(matches!(error, AudioError::Broken { .. }), "{name}: {error}");
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn no_flipped_bytes_make_it_panic() {
    use rand::{RngExt, SeedableRng};
    let mut random = rand_chacha::ChaCha12Rng::seed_from_u64(5);
    for name in ["said.flac", "said.mp3", "said.ogg", "said.m4a", "said_8k.wav", "said.aiff"] {
        let whole = file(name);
        for _ in 0..40 {
            let mut bytes = whole.to_vec();
            for _ in 0..20 {
                let at = random.random_range(0..bytes.len().min(3000));
                bytes[at] = random.random();
            }
            let Ok(mut sound) = SoundFile::open(bytes.into()) else { continue };
            let mut frames = 0;
            while let Ok(Some(piece)) = sound.read() {
                frames += piece.samples.len();
                if frames > 10_000_000 {
                    break;
                }
            }
        }
    }
}
