//! Parts that don't fit each other are refused by name; what is no matrix in parts is left alone.

use std::path::Path;

use candle_core::quantized::GgmlDType;
use safetensors::tensor::TensorView;
use sconce_blocks::Kind;
use serde_json::json;

use super::*;

type Part = (&'static str, Dtype, Vec<usize>, Vec<u8>);

fn words(count: usize) -> Vec<u8> {
    vec![0x88; 4 * count]
}

fn halves(value: f32, count: usize) -> Vec<u8> {
    half::f16::from_f32(value).to_le_bytes().repeat(count)
}

/// A matrix of 8 outputs and 32 inputs.
fn gptq() -> Vec<Part> {
    vec![
        ("x.qweight", Dtype::I32, vec![4, 8], words(32)),
        ("x.qzeros", Dtype::I32, vec![1, 1], vec![0x77; 4]),
        ("x.scales", Dtype::F16, vec![1, 8], halves(0.5, 8)),
        ("x.bias", Dtype::F16, vec![8], halves(1.0, 8)),
        ("norm.weight", Dtype::F16, vec![8], halves(1.0, 8)),
    ]
}

fn source(folder: &Path, parts: &[Part], quantization: &Value) -> CompressedSource {
    let views = parts.iter().map(|(name, dtype, shape, bytes)| {
        (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
    let inner = SafetensorsSource::open(folder).unwrap();
    CompressedSource::new(inner, quantization).unwrap()
}

#[test]
fn a_matrix_is_found_under_its_name_and_nothing_else_changes() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), &gptq(), &json!({"quant_method": "gptq"}));
    assert!(source.contains("x.weight") && source.contains("norm.weight"));
    assert!(!source.contains("y.weight") && !source.contains("xweight"));
    let mut names = source.names();
    names.sort_unstable();
    assert_eq!(names, ["norm.weight", "x.bias", "x.weight"]);
    let matrix = source.read("x.weight").unwrap();
    assert_eq!((matrix.kind(), matrix.dims()), (GgmlDType::Q4_0.into(), &[8, 32][..]));
    let values = matrix.to_tensor(candle_core::DType::F32).unwrap().flatten_all().unwrap();
    assert!(values.to_vec1::<f32>().unwrap().iter().all(|value| value.abs() < 1e-9));
    assert!(source.origin("x.weight").ends_with("model.safetensors"));
    assert_eq!(source.read("norm.weight").unwrap().kind(), GgmlDType::F16);
}

#[test]
fn parts_that_do_not_fit_are_refused_by_name() {
    let replaced = |name: &'static str, part: Option<(Dtype, Vec<usize>, Vec<u8>)>| {
        let mut parts = gptq();
        parts.retain(|(other, ..)| *other != name);
        parts.extend(part.map(|(dtype, shape, bytes)| (name, dtype, shape, bytes)));
        parts
    };
    let method = json!({"quant_method": "gptq"});
    for (parts, expected) in [
        (replaced("x.scales", None), "x.scales"),
        (replaced("x.qzeros", None), "x.qzeros"),
        (
            replaced("x.scales", Some((Dtype::F16, vec![2, 8], halves(1.0, 16)))),
            "expected 1 times 8",
        ),
        (replaced("x.scales", Some((Dtype::I32, vec![1, 8], words(8)))), "dtype I32"),
        (replaced("x.qzeros", Some((Dtype::I32, vec![1, 3], words(3)))), "4 and 8 bits"),
        (replaced("x.qweight", Some((Dtype::F16, vec![4, 8], halves(1.0, 32)))), "dtype F16"),
        (replaced("x.qweight", Some((Dtype::I32, vec![32], words(32)))), "expected a matrix"),
        (replaced("x.g_idx", Some((Dtype::I32, vec![31], words(31)))), "expected [32]"),
        (replaced("x.g_idx", Some((Dtype::I32, vec![32], words(32)))), "one of 1 groups"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let error = source(folder.path(), &parts, &method).read("x.weight").unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let floats = |shape: Vec<usize>, bytes: usize, scales: usize| {
        vec![
            ("x.weight", Dtype::F8_E4M3, shape, vec![0x38; bytes]),
            ("x.weight_scale_inv", Dtype::F32, vec![scales], vec![0x3f; 4 * scales]),
        ]
    };
    let blocks = json!({"quant_method": "fp8", "weight_block_size": [4, 4]});
    let folder = tempfile::tempdir().unwrap();
    let fine = source(folder.path(), &floats(vec![6, 8], 48, 4), &blocks).read("x.weight");
    assert_eq!(fine.unwrap().kind(), GgmlDType::BF16);
    let folder = tempfile::tempdir().unwrap();
    let error = source(folder.path(), &floats(vec![6, 8], 48, 3), &blocks).read("x.weight");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("3 scales for 6 rows of 8 columns"), "{error}");
}

#[test]
fn the_configuration_tells_whether_activations_have_a_scale_for_each_token() {
    let parts = vec![
        ("x.weight", Dtype::I8, vec![8, 32], vec![0x81; 256]),
        ("x.weight_scale", Dtype::F16, vec![8, 1], halves(0.5, 8)),
    ];
    let by_token = json!({
        "num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true
    });
    let with = |key: &str, value: Value| {
        let mut inputs = by_token.clone();
        inputs[key] = value;
        inputs
    };
    for (inputs, kind) in [
        (json!([by_token]), Kind::W8A8),
        (json!([by_token, by_token]), Kind::W8A8),
        (json!([by_token, null]), GgmlDType::Q8_0.into()),
        (json!([with("dynamic", json!(false))]), GgmlDType::Q8_0.into()),
        (json!([with("symmetric", json!(false))]), GgmlDType::Q8_0.into()),
        (json!([with("strategy", json!("tensor"))]), GgmlDType::Q8_0.into()),
        (json!([with("type", json!("float"))]), GgmlDType::Q8_0.into()),
        (json!([with("num_bits", json!(4))]), GgmlDType::Q8_0.into()),
        (json!([]), GgmlDType::Q8_0.into()),
    ] {
        let groups: serde_json::Map<String, Value> = inputs
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
            .map(|(i, inputs)| (format!("group_{i}"), json!({"input_activations": inputs})))
            .collect();
        let quantization = json!({"quant_method": "compressed-tensors", "config_groups": groups});
        let folder = tempfile::tempdir().unwrap();
        let matrix = source(folder.path(), &parts, &quantization).read("x.weight").unwrap();
        assert_eq!(matrix.kind(), kind, "{inputs}");
        let values = matrix.to_tensor(candle_core::DType::F32).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(values, vec![vec![-63.5; 32]; 8]);
        let all = 0..32;
        assert_eq!(matrix.columns(&[all]).unwrap().kind(), kind);
    }
}

#[test]
fn methods_that_are_not_known_are_left_to_others() {
    for unknown in [
        json!({}),
        json!({"quant_method": "aqlm"}),
        json!({"quant_method": "awq", "version": "marlin"}),
        json!({"quant_method": "fp8", "weight_block_size": [0, 4]}),
    ] {
        assert_eq!(scheme(&unknown), None, "{unknown}");
    }
}
