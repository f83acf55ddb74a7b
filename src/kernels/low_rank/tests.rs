//! Low-rank terms beside two plain products, and rows alone beside rows in company.

use candle_core::{DType, Device, Tensor};

use super::*;
use crate::cpu::Level;
use crate::random::{Random, assert_close, bits};

/// `y` with the parts added at a level.
fn at(level: Level, x: &Tensor, y: &Tensor, parts: &[LowRankRows<'_>]) -> Tensor {
    let inputs = x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let mut outputs = y.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    cpu::low_rank_add(level, &inputs, &mut outputs, parts);
    Tensor::from_vec(outputs, y.dims(), &Device::Cpu).unwrap()
}

fn matrices(random: &mut Random, dtype: DType, [rank, k, n]: [usize; 3]) -> [Tensor; 2] {
    [(rank, k), (n, rank)].map(|shape| random.tensor(shape).to_dtype(dtype).unwrap())
}

#[test]
fn equals_two_plain_products() {
    let mut random = Random::new(1);
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for [rank, k, n] in [[1, 1, 1], [3, 16, 17], [8, 40, 300], [19, 70, 129]] {
            let [down, up] = matrices(&mut random, dtype, [rank, k, n]);
            let term = LowRank::new(&down, &up).unwrap();
            let (x, y) = (random.tensor((7, k)), random.tensor((7, n)));
            let [down, up] = [down, up].map(|matrix| matrix.to_dtype(DType::F32).unwrap());
            let product = x.matmul(&down.t().unwrap()).unwrap().matmul(&up.t().unwrap()).unwrap();
            let expected = (&y + (product * 0.5).unwrap()).unwrap();
            let rows: Vec<u32> = (0..7).collect();
            let parts = [LowRankRows { term: &term, rows: &rows, factor: 0.5 }];
            for level in Level::available() {
                assert_close(&at(level, &x, &y, &parts), &expected, 1e-4);
            }
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_among_others() {
    let mut random = Random::new(2);
    let (x, y) = (random.tensor((40, 200)), random.tensor((40, 900)));
    let terms: Vec<LowRank> = (0..3)
        .map(|_| matrices(&mut random, DType::BF16, [13, 200, 900]))
        .map(|[down, up]| LowRank::new(&down, &up).unwrap())
        .collect();
    // The first has many rows, the second few, the third one; row 39 has none.
    let rows: [Vec<u32>; 3] = [(0..30).collect(), (30..38).step_by(2).collect(), vec![35]];
    let parts: Vec<LowRankRows<'_>> = terms
        .iter()
        .zip(&rows)
        .map(|(term, rows)| LowRankRows { term, rows, factor: 0.7 })
        .collect();
    for level in Level::available() {
        let all = at(level, &x, &y, &parts);
        for part in &parts {
            for row in part.rows {
                let one = |from: &Tensor| from.narrow(0, *row as usize, 1).unwrap();
                let (x, y) = (one(&x).copy().unwrap(), one(&y).copy().unwrap());
                let alone = at(level, &x, &y, &[LowRankRows { rows: &[0], ..*part }]);
                assert_eq!(bits(&alone), bits(&one(&all)), "row {row}");
            }
        }
        let others = [39u32, 31];
        for row in others {
            let one = |from: &Tensor| bits(&from.narrow(0, row as usize, 1).unwrap());
            assert_eq!(one(&all), one(&y), "row {row} has no term");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut random = Random::new(3);
    let [down, up] = matrices(&mut random, DType::F32, [2, 8, 6]);
    let term = LowRank::new(&down, &up).unwrap();
    assert!(LowRank::new(&down, &random.tensor((6, 3))).is_err());
    assert!(LowRank::new(&down.to_dtype(DType::F64).unwrap(), &up).is_err());
    let (x, y, narrow) = (random.tensor((3, 8)), random.tensor((3, 6)), random.tensor((3, 5)));
    let add = |y: &Tensor, rows: &[&[u32]]| {
        let part = |rows| LowRankRows { term: &term, rows, factor: 1.0 };
        let parts: Vec<LowRankRows<'_>> = rows.iter().copied().map(part).collect();
        low_rank_add(&x, y, &parts).map_err(|error| error.to_string())
    };
    assert!(add(&y, &[&[3]]).unwrap_err().contains("row 3 of 3"));
    assert!(add(&y, &[&[0, 1], &[1]]).unwrap_err().contains("row 1 is named twice"));
    assert!(add(&narrow, &[&[0]]).unwrap_err().contains("from 8 to 6 features"));
    assert!(add(&y, &[&[0], &[2]]).is_ok());
}
