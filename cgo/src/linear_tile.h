// Rows against one piece of one panel. linear.cc includes this once for each instruction set, inside a namespace that
// says what Sixteen is and how many rows make a tile. All of them make the same chain of fused multiply-adds for an
// element of the result, and so the same bits.

// A cache line, 64 bytes, holds the weights of one inner element (float32) or two.
template <class W>
constexpr int64_t kPerLine = 64 / (kWidth * sizeof(W));

// rows x 16 sums over length inner elements; burst lines at next are fetched for every four that are read.
template <int rows, class W>
inline void tile(const Output& out, const float* x, int64_t ldx, const W* w, int64_t length, const char* next,
                 int64_t burst) {
  Sixteen sum[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) sum[r] = zero();
  for (int64_t k = 0; k < length; k++) {
    if (k % (4 * kPerLine<W>) == 0) {
      for (int64_t i = 0; i < burst; i++, next += 64) _mm_prefetch(next, _MM_HINT_T1);
    }
    const Sixteen v = load(w + k * kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) multiply_add(sum[r], x + r * ldx + k, v);
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
    float* y = out.y + r * out.stride;
    if (out.width == kWidth) {
      Sixteen v = sum[r];
      if (out.bias != nullptr) v = add(v, load(out.bias));
      if (out.add) v = add(v, load(y));
      store(y, v);
      continue;
    }
    float values[kWidth];
    store(values, sum[r]);
    for (int64_t j = 0; j < out.width; j++) {
      const float v = out.bias != nullptr ? values[j] + out.bias[j] : values[j];
      y[j] = out.add ? v + y[j] : v;
    }
  }
}

// A tile of n rows, 1 to rows.
template <int rows, class W>
inline void tile_of(int64_t n, const Output& out, const float* x, int64_t ldx, const W* w, int64_t length,
                    const char* next, int64_t burst) {
  if constexpr (rows > 1) {
    if (n < rows) return tile_of<rows - 1>(n, out, x, ldx, w, length, next, burst);
  }
  tile<rows>(out, x, ldx, w, length, next, burst);
}

// In tiles of about equal height. Meanwhile the next piece, behind this one, is fetched into the cache.
template <class W>
void panel_piece(const Output& all, const float* x, int64_t ldx, int64_t M, const W* w, int64_t length) {
  const int64_t tiles = (M + kTile - 1) / kTile, burst = (3 + tiles) / tiles;
  const char* next = reinterpret_cast<const char*>(w + length * kWidth);
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t from = M * t / tiles, rows = M * (t + 1) / tiles - from;
    Output out = all;
    out.y += from * out.stride;
    tile_of<kTile>(rows, out, x + from * ldx, ldx, w, length, next + t * burst * (length / (4 * kPerLine<W>)) * 64,
                   burst);
  }
}
