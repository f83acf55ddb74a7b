// What is asked of a row of logits, and what was drawn of it.
#pragma once

#include "../cuda/device.cuh"

// A token's bias (-inf: it is suppressed), its logit, or its occurrences in the output: 0 of what
// stands in the prompt alone.
struct TokenNumber {
    uint32_t token;
    float number;
};
DESCRIBE(TokenNumber, FIELD(token), FIELD(number))

// What stands at an index of a row's counts from now on; a token beyond the vocabulary is none.
struct CountChange {
    uint32_t index, token;
    float number;
};
DESCRIBE(CountChange, FIELD(index), FIELD(token), FIELD(number))

// What is asked of one row. Ranges are of lists in `Sample`; tokens beyond the vocabulary count for
// nothing. All ones mean none, for `mask`, `required` and `top`.
struct SampleRow {
    // Where to draw, in [0, 1); unused where the temperature means greedy.
    double position;
    // [count_end], which stay from draw to draw: one for each token, and none where no penalty is on.
    TokenNumber *counts;
    // Of the logits, and of `copies` if there are logprobs.
    uint32_t row, copy;
    // A `top_k` of 0 is off.
    float temperature, top_p, min_p;
    uint32_t top_k;
    float repetition_penalty, frequency_penalty, presence_penalty;
    // Biases of one token stand next to each other, in the order in which they are added. Changes are of
    // counts, and come before these are looked at.
    uint32_t bias_start, bias_end, change_start, change_end, count_end;
    // Where the grammar's mask begins, and its words; the only token that may come, whatever the mask;
    // most likely tokens to report (none: no logprobs at all).
    uint32_t mask, mask_words, required, top;
};
DESCRIBE(SampleRow, FIELD(position), FIELD(counts), FIELD(row), FIELD(copy), FIELD(temperature),
         FIELD(top_p), FIELD(min_p), FIELD(top_k), FIELD(repetition_penalty),
         FIELD(frequency_penalty), FIELD(presence_penalty), FIELD(bias_start), FIELD(bias_end),
         FIELD(change_start), FIELD(change_end), FIELD(count_end), FIELD(mask), FIELD(mask_words),
         FIELD(required), FIELD(top))

// What was drawn. The logprob of a logit x is x - (max + ln(sum)) in f64, rounded to f32.
struct SampledRow {
    // Of e^(logit - max) over the model's own logits; with logprobs.
    double sum;
    // The model's own, and the drawn token's own; with logprobs.
    float max, logit;
    // Or the index of the first NaN.
    uint32_t token;
    // 0 drawn, 1 a logit is NaN, 2 the logits are not finite, 3 every token is excluded
    uint32_t status;
    // With logprobs: the drawn token's rank, from 1, and how many most likely tokens there are.
    uint32_t rank, top;
};
DESCRIBE(SampledRow, FIELD(sum), FIELD(max), FIELD(logit), FIELD(token), FIELD(status), FIELD(rank),
       FIELD(top))
