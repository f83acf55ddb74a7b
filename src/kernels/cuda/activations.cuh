// Functions of single numbers.
#pragma once

#include "device.cuh"

enum Function : uint32_t {
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
};

// A function and its numbers: the cap; or positive, negative and beta; or alpha and limit.
struct Numbers {
    uint32_t function;
    float a, b, c;
};
DESCRIBE(Numbers, FIELD(function), FIELD(a), FIELD(b), FIELD(c))

INLINE float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }

INLINE float apply(const Numbers &numbers, float x) {
    switch (numbers.function) {
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
        return numbers.a * tanhf(x / numbers.a);
    case SIGMOID:
        return sigmoid_of(x);
    case XIELU:
        return numbers.c * x +
               (x > 0 ? numbers.a * x * x : numbers.b * (expm1f(x) - x));
    default:
        return x;
    }
}

INLINE float apply_to_pair(const Numbers &numbers, float gate, float up) {
    if (numbers.function == CLAMPED) {
        float alpha = numbers.a, limit = numbers.b;
        gate = fminf(gate, limit);
        up = fmaxf(fminf(up, limit), -limit);
        return gate * sigmoid_of(alpha * gate) * (up + 1);
    }
    return apply(numbers, gate) * up;
}
