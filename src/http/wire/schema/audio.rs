//! The form that speech comes in, and the events of a transcript.

use serde_json::json;

use super::builders::{any_of, list, object, reference, text, words};

written! {
    /// A file of sound, and how it is to be transcribed.
    TranscriptionForm: object(&["file"], &json!({
        "file": {"type": "string", "format": "binary",
            "description": "wav, aiff, flac, mp3, ogg (Vorbis), m4a or mp4 (AAC, ALAC)"},
        "model": {"type": "string",
            "description": "A name of the model for speech; that model, if it isn't said."},
        "language": {"type": "string",
            "description": "What is spoken, by its code or English name; found out, if it isn't said."},
        "prompt": {"type": "string",
            "description": "A text that the transcript is to look like a continuation of."},
        "response_format": words(&["json", "text", "srt", "verbose_json", "vtt"]),
        "temperature": {"type": "number", "minimum": 0, "maximum": 1,
            "description": "0 takes the likeliest tokens, and draws where those look wrong."},
        "timestamp_granularities[]": list(&words(&["word", "segment"])),
        "include[]": list(&words(&["logprobs"])),
        "stream": {"type": "boolean",
            "description": "Whether segments are sent when they are there; with json and text only."},
        "seed": {"type": "integer", "minimum": 0, "description": "What makes draws differ."},
        "condition_on_previous_text": {"type": "boolean",
            "description": "Whether each half minute is told of the text before it: true, if it isn't said."},
    }));
    /// A transcript in the format json or verbose_json.
    AnyTranscript: any_of(&[reference("Transcript"), reference("VerboseTranscript")]);
    /// An event of a transcript.
    TranscriptEvent: any_of(&[
        reference("TranscriptTextDelta"),
        reference("TranscriptTextDone"),
        reference("Error"),
    ]);
    /// A segment is there.
    TranscriptTextDelta: object(&["type", "delta"], &json!({
        "type": words(&["transcript.text.delta"]),
        "delta": text(),
        "logprobs": list(&reference("TranscriptLogprob")),
    }));
    /// All segments are.
    TranscriptTextDone: object(&["type", "text"], &json!({
        "type": words(&["transcript.text.done"]),
        "text": text(),
        "logprobs": list(&reference("TranscriptLogprob")),
    }));
}
