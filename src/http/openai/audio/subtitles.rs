//! Segments as subtitles.

use std::fmt::Write;

use crate::speech::transcriber::Segment;

/// `SubRip`: numbered, milliseconds behind a comma.
pub(super) fn srt(segments: &[Segment]) -> String {
    let mut text = String::new();
    for (index, segment) in segments.iter().enumerate() {
        let (start, end) = (time(segment.start, ','), time(segment.end, ','));
        let said = segment.text.trim().replace("-->", "->");
        // Writing to a string can't fail.
        let _ = write!(text, "{}\n{start} --> {end}\n{said}\n\n", index + 1);
    }
    text
}

/// `WebVTT`: a heading, milliseconds behind a dot.
pub(super) fn vtt(segments: &[Segment]) -> String {
    let mut text = "WEBVTT\n\n".to_owned();
    for segment in segments {
        let (start, end) = (time(segment.start, '.'), time(segment.end, '.'));
        let said = segment.text.trim().replace("-->", "->");
        let _ = write!(text, "{start} --> {end}\n{said}\n\n");
    }
    text
}

/// Hours, minutes, seconds and milliseconds.
fn time(seconds: f64, point: char) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few hours")]
    let all = (seconds.max(0.0) * 1000.0).round() as u64;
    let (hours, minutes) = (all / 3_600_000, all / 60_000 % 60);
    format!("{hours:02}:{minutes:02}:{:02}{point}{:03}", all / 1000 % 60, all % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start: f64, end: f64, text: &str) -> Segment {
        Segment {
            id: 0,
            seek: 0,
            start,
            end,
            text: text.to_owned(),
            tokens: Vec::new(),
            log_probabilities: Vec::new(),
            words: Vec::new(),
            temperature: 0.0,
            mean_log_probability: 0.0,
            compression_ratio: 1.0,
            no_speech: 0.0,
        }
    }

    #[test]
    fn times_are_those_of_the_formats() {
        let segments = [segment(0.0, 1.5, " Hi --> you."), segment(3661.0, 3661.0206, " Bye.")];
        assert_eq!(
            srt(&segments),
            "1\n00:00:00,000 --> 00:00:01,500\nHi -> you.\n\n\
             2\n01:01:01,000 --> 01:01:01,021\nBye.\n\n"
        );
        assert_eq!(
            vtt(&segments),
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHi -> you.\n\n\
             01:01:01.000 --> 01:01:01.021\nBye.\n\n"
        );
        assert_eq!((srt(&[]).as_str(), vtt(&[]).as_str()), ("", "WEBVTT\n\n"));
    }
}
