//! The embedded demo model: its bytes, its corpus, its trainer.
