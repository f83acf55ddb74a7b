// Elementwise operations; `pointwise/cuda.rs` numbers them alike.
#pragma once

#include "../cuda/device.cuh"

enum Op : uint32_t {
    SILU,
    GELU,
    GELU_TANH,
    RELU,
    RELU_SQUARED,
    // cap * tanh(x / cap)
    SOFT_CAP,
    SIGMOID,
    // positive * x^2 + beta * x above zero, negative * (e^x - 1 - x) + beta * x below.
    XIELU,
    // Of a pair alone: both are bounded by `limit`, then gate * sigmoid(alpha * gate) * (up + 1).
    CLAMPED,
    // Of a pair alone: silu(gate) is at most `limit`, `up` is bounded by it, and they are multiplied.
    LIMITED,
    // Of a pair alone, the second one times a factor: their sum.
    ADDED,
    // Of a pair alone: `gate` is at most `limit`, `up` is bounded by it, then silu(gate) * up.
    BOUNDED,
};

// An operation and its parameters: the cap; or positive, negative and beta; or alpha and limit; or limit; or
// the factor.
struct ElementwiseOp {
    uint32_t op;
    float a, b, c;
};
DESCRIBE(ElementwiseOp, FIELD(op), FIELD(a), FIELD(b), FIELD(c))

INLINE float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }

INLINE float apply(const ElementwiseOp &op, float x) {
    switch (op.op) {
    case SILU:
        return x * sigmoid_of(x);
    case GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678f));
    case GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case RELU:
        return fmaxf(x, 0);
    case RELU_SQUARED: {
        float above = fmaxf(x, 0);
        return above * above;
    }
    case SOFT_CAP:
        return op.a * tanhf(x / op.a);
    case SIGMOID:
        return sigmoid_of(x);
    case XIELU:
        return op.c * x +
               (x > 0 ? op.a * x * x : op.b * (expm1f(x) - x));
    default:
        return x;
    }
}

INLINE float apply_to_pair(const ElementwiseOp &op, float gate, float up) {
    if (op.op == CLAMPED) {
        float alpha = op.a, limit = op.b;
        gate = fminf(gate, limit);
        up = fmaxf(fminf(up, limit), -limit);
        return gate * sigmoid_of(alpha * gate) * (up + 1);
    }
    if (op.op == LIMITED) {
        float limit = op.a;
        return fminf(gate * sigmoid_of(gate), limit) * fmaxf(fminf(up, limit), -limit);
    }
    if (op.op == BOUNDED) {
        float limit = op.a;
        gate = fminf(gate, limit);
        return gate * sigmoid_of(gate) * fmaxf(fminf(up, limit), -limit);
    }
    if (op.op == ADDED) {
        return fmaf(op.a, up, gate);
    }
    return apply(op, gate) * up;
}
