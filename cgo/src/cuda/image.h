// The compiled kernels that the library carries.
#pragma once
#include <string>

namespace af::cuda {

// A fat binary of kernels.cu (machine code of sm_90, PTX for newer and for older devices); empty in a build without.
std::string carried_image();

}  // namespace af::cuda
