/* For the tests of this library: what lets the path of CUDA run on the CPU. */
#ifndef AF_CUDA_SCRIPTED_H
#define AF_CUDA_SCRIPTED_H
#include "../../af.h"
#ifdef __cplusplus
extern "C" {
#endif

/* From now on tensors of the CPU are computed on as those of a CUDA device are: kernels are launched through driver, a
   library in place of libcuda.so.1, from the file image in place of the carried one, and stand_ins is loaded, a library
   that gives the CPU the operators that only CUDA has. "" leaves one out. All three null: as before. */
af_error *af_cuda_scripted(const char *driver, const char *image, const char *stand_ins);

/* Runs an operation of train.h by the path of devices other than the CPU: on CUDA device number device, or with -1 on
   the CPU, in dtype. Buffer i has sizes[2i] rows of
   sizes[2i + 1] numbers, is read, and holds afterwards what the operation left; operations.cc has the buffers of each.
   Tensors begin shift elements behind a boundary of 16 bytes. Nothing is kept. */
af_error *af_cuda_operation(const char *operation, int device, int dtype, float *const *buffers, const int64_t *sizes,
                            int count, int64_t shift, int64_t heads, double number);

/* Since the process began: decode steps whose launches were recorded (single_rows.h), and recordings that failed. */
void af_cuda_recordings(int64_t *recorded, int64_t *failed);
/* The next count recordings where the CPU stands for a device fail as the driver does without memory. */
void af_cuda_fail_recordings(int64_t count);

/* Counts what a forward and backward over b (logprobs of every row, gradients of every parameter) asks of a device that
   scripted CUDA stands for, on tensors without numbers: writes to file a line for each operator of libtorch, with its
   calls, bytes read and written, and floating-point operations of matrix products. Own kernels are in the driver's log,
   which begins anew. */
af_error *af_cuda_counts(const af_model_config *c, int dtype, const af_batch *b, int checkpoint, const char *file);

#ifdef __cplusplus
}
#endif
#endif
