/* The C boundary of AgentFly's C++ library. Plain C11; no libtorch type appears here.
 *
 * Conventions, for every declaration:
 *   - a fallible function returns af_error* (NULL on success; the caller frees it with af_error_free) and throws nothing;
 *   - "borrowed": read during the call only; "new": the caller owns it and frees it with the named function;
 *   - no pointer of the caller is kept after return; nothing calls back;
 *   - thread: any, but calls on one af_model, and on what was made from it, must not overlap (the Go side holds a lock);
 *   - autograd mode is set and restored inside each function.
 * Arrays are contiguous, row-major; shapes stand in brackets. */
#ifndef AGENTFLY_AF_H
#define AGENTFLY_AF_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */
typedef struct af_error af_error;
enum { AF_ERR_TORCH = 1, AF_ERR_STD = 2, AF_ERR_MEMORY = 3, AF_ERR_UNKNOWN = 4, AF_ERR_INPUT = 5, AF_ERR_NONFINITE = 6, AF_ERR_RANK = 7 };
int af_error_code(const af_error *e);            /* e borrowed */
const char *af_error_message(const af_error *e); /* valid until af_error_free */
void af_error_free(af_error *e);                 /* steals e; NULL is allowed */

/* ---- process ---- */
const char *af_torch_version(void); /* static */
int af_cuda_devices(void);          /* 0 where libtorch has no CUDA or the driver shows none */
void af_set_threads(int n);         /* intra-op threads of the calling thread's pool, n >= 1 */
int64_t af_live_handles(void);      /* objects made here and not freed yet: tensors, models, optimizers, caches, errors */

/* ---- what a training step costs; for benchmarks ----
 * From start to stop each stage of a forward, a backward or an optimizer's step waits for the device before it and after
 * it, so that its time is its own and the whole is slower. One profile in the process; a start drops what was counted. */
enum { AF_STAGE_EMBEDDING, AF_STAGE_ELEMENTWISE, AF_STAGE_LINEAR, AF_STAGE_ATTENTION, AF_STAGE_HEAD, AF_STAGE_OPTIMIZER, AF_STAGES };
typedef struct { double seconds[AF_STAGES]; int64_t calls[AF_STAGES]; } af_profile;
void af_profile_start(void);
void af_profile_stop(af_profile *out); /* out borrowed */
/* What libtorch's profiler sees between start and stop, which one thread calls: kernels and copies on the device (-1: CPU,
 * which has none), calls of libtorch's operators with those that operators make, and the names that took most time: kernels, on a
 * CPU operators. With AGENTFLY_TRACE=FILE in the environment all of it goes to FILE, as Chrome's trace viewer and Perfetto read it. */
typedef struct { int64_t kernels, copies, operators; double kernel_seconds, copy_seconds; } af_trace;
typedef struct { char name[200]; int64_t calls; double seconds; } af_traced;
af_error *af_trace_start(int device);
af_error *af_trace_stop(af_trace *out, af_traced *busiest, int64_t n); /* busiest [n] borrowed, most first, "" behind the last */
/* Bytes of a CUDA device that libtorch's allocator has handed out and holds, and the most of both since the last reset. */
typedef struct { int64_t allocated, peak, reserved, peak_reserved; } af_memory;
af_error *af_device_memory(int device, int reset, af_memory *out);

/* ---- tensors: at::Tensor*, the same pointers that gotorch holds ---- */
typedef void *af_tensor;
void af_tensor_free(af_tensor t);   /* steals t; NULL is allowed */
int64_t af_tensor_drain(void);      /* frees what gotorch's finalizers queued; call when no tensor op is in flight */
enum { AF_F32 = 0, AF_F16 = 1, AF_BF16 = 2, AF_F64 = 5 };
/* data [shape...] borrowed, copied to the model's device (or CPU when m is NULL); out new */
struct af_model;
af_error *af_tensor_new(struct af_model *m, const void *data, int dtype, const int64_t *shape, int ndim, af_tensor *out);
/* copies t as float32 to out [n]; fails unless t has n elements; t borrowed */
af_error *af_tensor_read(af_tensor t, float *out, int64_t n);

int64_t af_tensor_numel(af_tensor t); /* borrowed; -1 for NULL */

/* Autograd ops that gotorch lacks. a, b borrowed; *out new. */
enum { AF_OP_EXP = 0, AF_OP_NEG, AF_OP_DETACH, AF_OP_SIGMOID };
af_error *af_op_unary(int op, af_tensor a, af_tensor *out);
enum { AF_OP_MINIMUM = 0, AF_OP_MAXIMUM, AF_OP_GT, AF_OP_LT };
af_error *af_op_binary(int op, af_tensor a, af_tensor b, af_tensor *out); /* broadcasting; GT, LT give bool */
af_error *af_op_clamp(af_tensor a, double low, double high, af_tensor *out); /* +-INFINITY leaves a side open */
af_error *af_op_affine(af_tensor a, double scale, double shift, af_tensor *out); /* scale * a + shift */
af_error *af_op_where(af_tensor condition, af_tensor a, af_tensor b, af_tensor *out);
/* sum of a[i] * weight[i] over weight[i] != 0 only: where the weight is 0, a NaN in a touches neither value nor gradient.
 * a, weight [N]; *out new, scalar. */
af_error *af_op_masked_sum(af_tensor a, af_tensor weight, af_tensor *out);
af_error *af_backward(af_tensor loss); /* borrowed scalar; accumulates into the parameters' gradients */

/* ---- model: decoder-only transformer (Llama, SmolLM, Mistral, Qwen2, Qwen3) ---- */
typedef struct af_model af_model;
typedef struct {
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
  double rms_norm_eps;
  int tie_word_embeddings, qkv_bias, o_bias, mlp_bias, qk_norm;
  const float *inv_freq;     /* [head_dim/2] RoPE frequencies, scaling already applied; borrowed */
  double attention_factor;   /* multiplies cos and sin (YaRN); 1 otherwise */
} af_model_config;
/* device: -1 CPU, otherwise the CUDA index. Parameters are float32, zero until set. out new, af_model_free */
af_error *af_model_new(const af_model_config *c, int device, af_model **out);
void af_model_free(af_model *m); /* steals; NULL is allowed; free optimizers and caches first */
/* Adds value_head.weight [1, D] and value_head.bias [1], zeros, to what is trained. Gradients are dropped; optimizers made
 * before refuse to step. */
af_error *af_model_add_value_head(af_model *m);
/* LoRA: y = x W^T + alpha/rank (x A^T) B^T for the projections of targets in every layer. A [rank, in] is uniform within
 * 1/sqrt(in) from a counter-based generator, B [out, rank] zero. From then on the base model is frozen: what is trained is
 * the adapter, and the value head where there is one. Gradients are dropped; optimizers made before refuse to step. */
enum {
  AF_TARGET_Q = 1, AF_TARGET_K = 2, AF_TARGET_V = 4, AF_TARGET_O = 8, AF_TARGET_GATE = 16, AF_TARGET_UP = 32,
  AF_TARGET_DOWN = 64, AF_TARGET_ALL = 127
};
typedef struct { int64_t rank; double alpha; unsigned targets; uint64_t seed; } af_adapter_config;
af_error *af_model_add_adapter(af_model *m, const af_adapter_config *c);
/* on = 0: forwards from now on compute the base model. Caches always compute the model with its adapter. */
void af_model_set_adapter(af_model *m, int on);
/* AF_BASE: the base model, Hugging Face's names in file order. AF_TRAINED: what the gradient and the optimizer cover. */
enum { AF_BASE = 0, AF_TRAINED = 1 };
int64_t af_model_num_parameters(const af_model *m, int which);
const char *af_model_parameter_name(const af_model *m, int which, int64_t i); /* valid until parameters are added */
/* name of either kind; ndim out; shape [2] out */
af_error *af_model_parameter_shape(const af_model *m, const char *name, int *ndim, int64_t *shape);
/* data [shape...] of dtype F32, F16 or BF16, borrowed, converted; bumps nothing: call af_model_changed afterwards */
af_error *af_model_set_parameter(af_model *m, const char *name, int dtype, const void *data, const int64_t *shape, int ndim);
af_error *af_model_get_parameter(af_model *m, const char *name, float *out, int64_t n);
/* as get_parameter, with the adapter added: W + alpha/rank B A */
af_error *af_model_get_merged(af_model *m, const char *name, float *out, int64_t n);
af_error *af_model_get_gradient(af_model *m, const char *name, float *out, int64_t n); /* zeros where there is none */
/* matrices and embeddings ~ N(0, std), norms 1, biases 0, from a counter-based generator: same seed, same bits */
af_error *af_model_init(af_model *m, uint64_t seed, double std);
/* Gives the memory of the device back that the parameters do not need, for somebody else who shares it: rounded copy and
 * intermediates are dropped, as is a gradient of zeros, and the device's allocator is emptied. Another gradient goes to
 * host memory until af_optimizer_restore. The next forward takes what it needs again. AF_ERR_INPUT while sums of gradients
 * are under way, as for af_optimizer_release. */
af_error *af_model_release(af_model *m);
/* tells that parameters changed: what the engine packed or cast is redone before its next forward */
void af_model_changed(af_model *m);

/* AF_F32 (the default) or AF_BF16: the type that forwards and backwards compute in. With BF16 they read a rounded copy of the
 * parameters; parameters, gradients and moments stay float32, and so do logprobs, entropies, values and what they are
 * reduced from. */
af_error *af_model_set_dtype(af_model *m, int dtype);

/* What forwards and backwards are made of. The default is the kernels on a CPU and, on a CUDA device, flash attention in
 * bfloat16 and one segment at a time in float32. Others are for tests that hold two of them against each other; flash
 * needs an operator that libtorch has for CUDA alone. */
enum {
  AF_PATH_DEFAULT = -1,
  AF_PATH_KERNELS,  /* the CPU's own kernels */
  AF_PATH_SEGMENTS, /* ATen's operations, attention one segment at a time */
  AF_PATH_VARLEN,   /* the same, attention as one call of variable lengths, on ATen */
  AF_PATH_FLASH     /* the same, that call is libtorch's flash attention */
};
af_error *af_model_set_path(af_model *m, int path);

/* ---- packed batch: a forest of segments, each token computed once ----
 * A segment is a run of tokens that continues its parent segment (-1: a root). A token attends to all tokens of its
 * ancestors and to itself and earlier tokens of its own segment. Two samples that share a prefix share its segments. */
typedef struct {
  int64_t num_tokens;            /* T */
  const int32_t *tokens;         /* [T] */
  const int32_t *positions;      /* [T] from 0 along each root-to-leaf path */
  int64_t num_segments;          /* S */
  const int32_t *segment_start;  /* [S] ascending, segments are contiguous and cover [0, T) */
  const int32_t *segment_length; /* [S] >= 1 */
  const int32_t *segment_parent; /* [S] index of an earlier segment, or -1 */
  int64_t num_rows;              /* N predictions */
  const int32_t *row_token;      /* [N] packed index whose hidden state predicts */
  const int32_t *row_target;     /* [N] token id that is predicted */
  double temperature;            /* divides the logits; > 0 */
} af_batch;
typedef struct {
  int grad;       /* the outputs carry autograd history */
  int64_t checkpoint; /* so many layers, from the first, keep their input alone and are computed again in backward */
  int entropy, values; /* return these too; values need a value head */
  /* The ranks that compute the batch together: all of them call the forward, and the backward of its outputs, with the same
   * batch and options. Those of context compute a share of the tokens each (context parallelism), those of tensor a share
   * of every layer (tensor parallelism); where both are given, each rank of one is in its own group of the other. Each gets
   * the outputs of all rows; its gradients of parameters are terms, and those of all ranks add up to the batch's. NULL:
   * this process computes all. */
  struct af_group *context, *tensor;
} af_forward_options;
typedef struct { af_tensor logprobs, entropy, values; } af_outputs; /* each [N] float32 new, NULL where not asked for */
/* The [N, vocab] logits never exist at once. values: the value head at row_token's hidden state, behind the last norm. */
af_error *af_model_forward(af_model *m, const af_batch *b, const af_forward_options *o, af_outputs *out);

/* Attention alone over the batch's segments, for tests. Borrowed float32: qkv and d_qkv [T, (H + 2K)E], out and d_out
 * [T, HE], lse [T, H]. It computes in the model's dtype. */
af_error *af_attention(const af_model *m, const af_batch *b, const float *qkv, const float *d_out, float *out, float *lse,
                       float *d_qkv);

/* ---- ranks: the processes of a data-parallel run, over PyTorch's c10d ----
 * Every rank calls the same functions in the same order. Each has a deadline, the group's timeout: when it passes, or a
 * rank dies or fails, the error is AF_ERR_RANK and names that rank; after it the group refuses everything. Gloo carries
 * CPU tensors, NCCL those of a CUDA device where libtorch has it (else they go through the CPU). */
typedef struct af_group af_group;
typedef struct {
  int rank, world;
  const char *address; int port; /* of the store */
  int serve;                     /* on rank 0: serve the store; 0 where a launcher does */
  const char *prefix;            /* of this group's keys in the store, "" for none */
  int device;                    /* of the tensors: -1 CPU, otherwise the CUDA index */
  int64_t timeout_ms;            /* > 0 */
  int first, stride;             /* errors call the ranks first, first + stride, ...: their numbers in the run; stride >= 1 */
} af_group_config;
/* waits for all ranks; out new, af_group_free */
af_error *af_group_new(const af_group_config *c, af_group **out);
void af_group_free(af_group *g);   /* steals; NULL is allowed */
af_error *af_group_barrier(af_group *g);
/* data [n] bytes becomes root's. patient != 0: no deadline while root's process is seen to live */
af_error *af_group_broadcast(af_group *g, int root, void *data, int64_t n, int patient);
/* out [world, n] bytes of in [n] */
af_error *af_group_gather(af_group *g, const void *in, int64_t n, void *out);
af_error *af_group_all_reduce(af_group *g, float *data, int64_t n);
/* data [n]: this rank's shards become the sum over the ranks (for tests, as is the next) */
af_error *af_group_reduce_scatter(af_group *g, float *data, int64_t n);
/* data [n]: the shards of every rank go to all */
af_error *af_group_all_gather(af_group *g, float *data, int64_t n);
/* bytes received since the start by reduce-scatters, by all-gathers and by everything else; seconds in which one of the
 * first two was going on, and seconds of them in which this rank did nothing but wait. Of CUDA tensors the
 * seconds mean nothing */
typedef struct { int64_t sums, gathers, rest; double busy, waited; } af_traffic;
void af_group_traffic(const af_group *g, af_traffic *out);
/* tells the other ranks that this one fails and why */
void af_group_fail(af_group *g, const char *why);
/* the model's parameters become those of rank 0; af_model_changed is implied */
af_error *af_model_broadcast(af_model *m, af_group *g);

/* ---- an NCCL group with processes that are no ranks of a run: the workers of a server that take weights ----
 * libnccl.so.2 is loaded when it is first asked for. library NULL or "": the one that libtorch uses, else one beside
 * libtorch, else the loader's. */
typedef struct { char path[1024]; int version; /* 22907 is 2.29.7 */ } af_nccl_library;
af_error *af_nccl_open(const char *library, af_nccl_library *out);
af_error *af_nccl_unique_id(const char *library, char *id); /* id [128] out */
typedef struct af_nccl af_nccl;
typedef struct {
  const char *library;
  const char *id;     /* [128] borrowed, as all pointers here */
  int rank, world;
  int device;         /* the CUDA index; -1 CPU, for a library that a test names */
  int64_t timeout_ms; /* > 0, of one call */
} af_nccl_config;
af_error *af_nccl_new(const af_nccl_config *c, af_nccl **out); /* out new, af_nccl_free; meets nobody yet */
/* Meets the other ranks and all-reduces one float32 with them. This and broadcast: AF_ERR_RANK when the deadline passes or
 * af_nccl_cancel comes, AF_ERR_STD with NCCL's own words when it fails; after either the group refuses everything. */
af_error *af_nccl_join(af_nccl *g);
/* data [n] bytes becomes root's; returns when it is through. Read and written during the call only */
af_error *af_nccl_broadcast(af_nccl *g, int root, void *data, int64_t n);
struct af_staging;
/* the same of the first n bytes of a staging buffer, on the device where it lies */
af_error *af_nccl_broadcast_staging(af_nccl *g, int root, struct af_staging *s, int64_t n);
void af_nccl_cancel(af_nccl *g); /* any thread, while another is in join or broadcast */
void af_nccl_free(af_nccl *g);   /* steals; NULL is allowed. Leaves the group without waiting for the others */

/* ---- staging: parameters as the bytes that other processes take ---- */
typedef struct af_staging af_staging;
typedef struct {
  int64_t capacity;   /* bytes of the model's device, > 0 */
  int ipc;            /* not 0: memory that af_staging_handle opens to other processes */
  const char *driver; /* of ipc: NULL or "" is libcuda.so.1; others are a test's, whose memory is the host's */
} af_staging_config;
af_error *af_staging_new(af_model *m, const af_staging_config *c, af_staging **out); /* out new, af_staging_free; keeps the model alive */
void af_staging_free(af_staging *s);                                               /* steals; NULL is allowed */
/* Writes base parameters, an adapter added, as dtype F32 or BF16 back to back from the buffer's start; done when it returns.
 * *bytes out. Fails where they do not fit. */
af_error *af_staging_pack(af_staging *s, const char *const *names, int64_t count, int dtype, int64_t *bytes);
af_error *af_staging_read(const af_staging *s, void *out, int64_t n); /* the first n bytes */
enum { AF_IPC_HANDLE_BYTES = 64 };
af_error *af_staging_handle(const af_staging *s, char *handle); /* handle [64] out: CUipcMemHandle; of ipc only */
/* counts changes of the model's parameters: what was packed at two counts may differ */
uint64_t af_model_version(const af_model *m);

/* ---- optimizer: AdamW (decoupled weight decay; norms, biases and embeddings are decayed too, as torch.optim.AdamW) ---- */
typedef struct af_optimizer af_optimizer;
typedef struct {
  double beta1, beta2, eps, weight_decay;
  int64_t offload; /* 0: the moments lie on the model's device; above: in host memory, so many elements of them come at once */
} af_adamw_config;
/* What the ranks hold and when they talk.
 *   AF_ZERO1: the moments are spread over the ranks; gradients are summed, and parameters gathered, within step.
 *   AF_FSDP: gradients are summed part by part while the backward after expect goes on; parameters are gathered
 *            in the background, part by part, and waited for by the forward that reads them. Of a model that computes in
 *            bfloat16 the float32 parameters are spread too, and it is bfloat16 that is gathered; rank 0's are whole
 *            until spread, those of the others not. */
enum { AF_ZERO1 = 0, AF_FSDP = 1 };
/* g NULL: this process alone, which spreads nothing. Otherwise every rank makes one and holds the state of its share of the
 * parameters; step, get_state, send, gather and share are collectives: all ranks call them alike. */
af_error *af_optimizer_new(af_model *m, const af_adamw_config *c, af_group *g, int shard, af_optimizer **out);
/* the next backward is the last before step */
af_error *af_optimizer_expect(af_optimizer *o);
/* Starts the sums that no backward has started. Each rank calls it once before step, whether its backwards failed or not. */
af_error *af_optimizer_send(af_optimizer *o);
/* rank 0 gets the float32 parameters whole, until the next spread; they are not renewed by step */
af_error *af_optimizer_gather(af_optimizer *o);
/* rank 0 frees what gather brought it; the others have nothing to free */
af_error *af_optimizer_spread(af_optimizer *o);
/* the parameters of all ranks become those of rank 0, where they are whole; af_model_changed is implied */
af_error *af_optimizer_share(af_optimizer *o);
void af_optimizer_free(af_optimizer *o);
/* Gradients are summed over the ranks. Global L2 norm of all gradients -> *norm. If it is not finite: AF_ERR_NONFINITE, gradients are dropped and nothing
 * else changes. Otherwise gradients are scaled by min(1, max_norm/(norm+1e-6)) (max_norm 0: no clipping), one AdamW step
 * with lr is taken, gradients are cleared, af_model_changed is implied. */
af_error *af_optimizer_step(af_optimizer *o, double lr, double max_norm, double *norm);
/* drops the gradients, and what is under way of their sums */
af_error *af_optimizer_zero_grad(af_optimizer *o);
/* Moments, and a gradient that is not zero, go to host memory (pinned beside a CUDA device), and af_model_release is implied.
 * Until restore a step is refused; state is read and set as ever. Either may be called again. AF_ERR_INPUT, and nothing is
 * released, while sums of gradients are under way (AF_FSDP, behind the backward of af_optimizer_expect). */
af_error *af_optimizer_release(af_optimizer *o);
af_error *af_optimizer_restore(af_optimizer *o);
/* state of one parameter: which 0 = exp_avg, 1 = exp_avg_sq; [n] float32. set keeps what this rank holds of it */
af_error *af_optimizer_get_state(af_optimizer *o, const char *name, int which, float *out, int64_t n);
af_error *af_optimizer_set_state(af_optimizer *o, const char *name, int which, const float *data, int64_t n);
int64_t af_optimizer_get_step(const af_optimizer *o);
void af_optimizer_set_step(af_optimizer *o, int64_t step);

/* ---- inference: paged KV cache, rows of several sequences in one forward ---- */
typedef struct af_cache af_cache;
/* num_blocks blocks of block_size tokens each, for all layers; dtype AF_F32 or AF_BF16: what it computes in and keeps keys
   and values in. On the CPU whatever the model does; in AF_BF16 as a model in that type without adapters does, up to the
   logits' last bits. On a device it must be the model's. out new, af_cache_free. Freed before the model. */
af_error *af_cache_new(af_model *m, int64_t num_blocks, int64_t block_size, int dtype, af_cache **out);
void af_cache_free(af_cache *c);
/* 1 where a row's result is the same bits whatever the other rows of a step are: on the CPU */
int af_cache_batch_invariant(const af_cache *c);
typedef struct {
  int64_t num_rows;              /* R tokens to compute, of any mix of sequences */
  const int32_t *tokens;         /* [R] */
  const int32_t *positions;      /* [R] position in its sequence; keys 0..position must be in the cache or in this call */
  const int32_t *sequence;       /* [R] row of block_table */
  int64_t num_sequences;         /* S */
  int64_t max_blocks;            /* B */
  const int32_t *block_table;    /* [S, B] block numbers; token p of a sequence lives in block p/block_size */
  int64_t num_outputs;           /* O rows to sample from */
  const int32_t *output_row;     /* [O] row index */
  const double *temperature;     /* [O] 0: greedy */
  const double *top_p;           /* [O] 1: off */
  const int32_t *top_k;          /* [O] 0: off */
  const double *min_p;           /* [O] 0: off */
  const uint64_t *seed;          /* [O] of the request */
  const uint64_t *counter;       /* [O] index of the token in its completion: (seed, counter) gives the random number */
  const int32_t *target;         /* [O] -1: sample; else this token is scored instead, at temperature 1 and untruncated */
  const int32_t *detail;         /* [O] -1: none; else 2 * k + raw: fill reported and k entries of the lists. raw 1: at
                                    temperature 1 and untruncated, 0: of the distribution that was sampled */
  const int64_t *edit_end;       /* [O] the edits of output o end here, and begin where those of o-1 end */
  const int32_t *edit_token;     /* [E] changes of the logits that a token is sampled from, in this order, not of a target's;
                                    raw details tell of the logits before them */
  const float *edit_divide;      /* [E] above 0: a positive logit is divided by it, a negative one multiplied */
  const float *edit_minus;       /* [E] then subtracted; INFINITY: the token is never sampled */
  const int32_t *allowed_row;    /* [O] -1: every token may be sampled; else those of this row of allowed, one at least */
  int64_t num_allowed;           /* A */
  const uint64_t *allowed;       /* [A, (V + 63) / 64] a bit a token: word t/64, bit t%64. Raw details tell of the logits before */
  int64_t max_top;               /* K, at least every k */
  float *reported;               /* [O] borrowed for the call, like the two lists: the sampled token's logprob */
  int32_t *top_ids;              /* [O, K] the most likely tokens, most likely first, lower id before higher; -1 after k */
  float *top_logprobs;           /* [O, K] -infinity for what truncation excludes */
} af_step;
/* sampled [O] token ids; logprobs [O] of the distribution that was sampled (greedy: of temperature 1), float32 */
af_error *af_cache_step(af_cache *c, const af_step *s, int32_t *sampled, float *logprobs);

#ifdef __cplusplus
}
#endif
#endif
