//! Schemas as people and generators write them: each compiles and makes valid documents, or is
//! refused for the keyword that the corpus names.

use super::*;

const CORPUS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/schemas/schemas.jsonl"
));

#[test]
fn schemas_of_the_corpus_make_valid_documents() {
    let mut random = Random(0x5EED);
    let (mut num_texts, mut num_walks) = (0, 0);
    for line in CORPUS.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let (name, schema) = (entry["name"].as_str().unwrap(), &entry["schema"]);
        if let Some(keyword) = entry["refused"].as_str() {
            let error = compile_schema(schema).expect_err(name);
            assert!(
                matches!(&error, GrammarError::Unsupported { keyword: found, .. } if found == keyword),
                "{name}: {error}"
            );
            continue;
        }
        let grammar = compile_schema(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
        let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
        for _ in 0..3 {
            num_walks += 1;
            let Some(text) = walk(&grammar, &mut random, 400) else { continue };
            match serde_json::from_str(&text) {
                Ok(document) => {
                    let error = validator.iter_errors(&document).next();
                    assert!(error.is_none(), "{name}: {text}: {}", error.unwrap());
                    num_texts += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("out of range"), "{name}: {error}");
                }
            }
        }
    }
    assert!(num_texts * 10 > num_walks * 8, "{num_texts} of {num_walks} walks ended");
}
