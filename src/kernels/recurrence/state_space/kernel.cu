// The selective state space of any mix of prompts, pieces of prompts and single tokens, see
// `recurrence.cuh`. No output may be an input. All forms give the same bits.
//
// state_space_64 (state_size <= 64), _128 and _256 alike, state_space_any
//     grid     [S, heads, ceil(head_dim / 32)]
//     threads  256
//     shared   128 R + 2304, where R is 64, 128 or 256 as in the name;
//              256 R + 2304 of state_space_any, where R is state_size rounded up to 16
#include "../recurrence.cuh"

struct StateSpace {
    // [T, heads * head_dim + 2 * groups * state_size], x_stride apart: inputs, then what writes and
    // what reads the states of each group
    const float *x;
    // [T, heads], steps_stride apart
    const float *steps;
    // [heads]
    const float *decay, *skip, *step_bias;
    // [slots, heads, state_size, head_dim]
    float *states;
    // [T, heads, head_dim]
    float *out;
    Sequences sequences;
    uint32_t x_stride, steps_stride;
    uint32_t heads, head_dim, state_size, groups;
    // Bounds of time steps; `most` may be infinite.
    float least, most;
};
LAYOUT(StateSpace, FIELD(x), FIELD(steps), FIELD(decay), FIELD(skip), FIELD(step_bias),
       FIELD(states), FIELD(out), FIELD(sequences), FIELD(x_stride), FIELD(steps_stride), FIELD(heads),
       FIELD(head_dim), FIELD(state_size), FIELD(groups), FIELD(least), FIELD(most))

// With inputs u and a time step s, a token makes S = e^(s * decay) * S + s * b u^T, and gives
// S^T c + skip * u.
struct Space {
    static constexpr unsigned VECTORS = 2;
    const StateSpace &work;
    const Matrices &matrices;

    INLINE void prepare(const Prepared &token, size_t row, unsigned padded) const {
        unsigned lane = threadIdx.x % WARP, head = matrices.head(), size = work.state_size;
        unsigned group = head / (work.heads / work.groups);
        const float *inputs = work.x + row * work.x_stride;
        const float *write = inputs + size_t(work.heads) * work.head_dim + size_t(group) * size;
        const float *read = write + size_t(work.groups) * size;
        matrices.copy(token.along, inputs + size_t(head) * work.head_dim);
        float step = softplus(work.steps[row * work.steps_stride + head] + work.step_bias[head]);
        step = fminf(fmaxf(step, work.least), work.most);
#pragma unroll
        for (unsigned i = lane; i < padded; i += WARP) {
            token.first[i] = i < size ? __fmul_rn(step, write[i]) : 0;
            token.second[i] = i < size ? read[i] : 0;
        }
        if (lane == 0) {
            token.factors[0] = expf(__fmul_rn(step, work.decay[head]));
            token.factors[1] = work.skip[head];
        }
    }

    template <unsigned ROWS>
    INLINE float advance(Column<ROWS> &column, const Prepared &token) const {
        const float *writes = token.first + matrices.part() * 4;
        const float *reads = token.second + matrices.part() * 4;
        float fading = token.factors[0], skip = token.factors[1];
        float input = token.along[matrices.own_column()];
        float sums[4] = {0, 0, 0, 0}, write[4], read[4];
#pragma unroll
        for (unsigned i = 0; i < column.count(); i += 4) {
            load_four(write, writes + i * SPLIT);
            load_four(read, reads + i * SPLIT);
#pragma unroll
            for (unsigned c = 0; c < 4; c++) {
                column[i + c] = fmaf(column[i + c], fading, __fmul_rn(write[c], input));
                sums[c] = fmaf(column[i + c], read[c], sums[c]);
            }
        }
        return fmaf(input, skip, column_sum(sums));
    }
};

template <unsigned ROWS> INLINE void state_space(const StateSpace &work) {
    Matrices matrices{work.states, work.out, work.heads, work.state_size, work.head_dim};
    recur<ROWS>(Space{work, matrices}, matrices, work.sequences);
}

RECURRENCE(state_space, StateSpace, 64, 64)
RECURRENCE(state_space, StateSpace, 128, 128)
RECURRENCE(state_space, StateSpace, 256, 256)
RECURRENCE(state_space, StateSpace, any, 0)
