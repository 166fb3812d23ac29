// Rows against one piece of one panel. panel.cc includes this once for each instruction set, inside a namespace that
// says what Sixteen is and how many rows make a tile. All of them make the same chain of fused multiply-adds for an
// element of the result, and so the same bits.

// A cache line, 64 bytes, holds the weights of one inner element (float32) or two (bfloat16).
template <class W>
constexpr int64_t kPerLine = 64 / (kPanel * sizeof(W));

// Rows of bfloat16 come packed, tile by tile, as [K/2, rows, 2]: what one inner step reads lies together, one stream
// for the cache instead of one a row.
template <class X>
constexpr bool kPacked = std::is_same_v<X, bfloat16>;
// Numbers of x from one inner element to the next.
template <int rows, class X>
constexpr int64_t step() {
  return kPacked<X> ? rows : 1;
}

// sum [rows] += x w for the inner elements of one line.
template <int rows>
inline void add_line(Sixteen (&sum)[rows], const float* x, int64_t ldx, const float* w) {
  const Sixteen v = load(w);
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) multiply_add(sum[r], x + r * ldx, v);
}
template <int rows>
inline void add_first(Sixteen (&sum)[rows], const float* x, int64_t ldx, const bfloat16* w) {
  const Sixteen v = first_of_pairs(w);
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) multiply_add(sum[r], x + r * ldx, v);
}
template <int rows>
inline void add_line(Sixteen (&sum)[rows], const float* x, int64_t ldx, const bfloat16* w) {
  const Sixteen v = second_of_pairs(w);
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) multiply_add(sum[r], x + r * ldx + 1, v);
  add_first(sum, x, ldx, w);
}
// The same by the instruction for pairs.
template <int rows>
inline void add_line(Sixteen (&sum)[rows], const bfloat16* x, int64_t ldx, const bfloat16* w) {
  const auto v = load_pairs(w);
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) multiply_add_pairs(sum[r], x + r * ldx, v);
}

inline Sixteen finished(Sixteen v, const Output& out, const float* y) {
  if (out.bias != nullptr) v = add(v, load(out.bias));
  if (out.add) v = add(v, load(y));
  return out.rounded ? to_half(v) : v;
}

// rows x 16 sums over length inner elements, an even number where x is bfloat16; burst
// lines at next are fetched for every four that are read.
template <int rows, class X, class W>
inline void tile(const Output& out, const X* x, int64_t ldx, const W* w, int64_t length, const char* next,
                 int64_t burst) {
  constexpr int64_t along = step<rows, X>();
  if constexpr (kPacked<X>) ldx = 2;
  Sixteen sum[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) sum[r] = zero();
  int64_t k = 0;
  for (; k + kPerLine<W> <= length; k += kPerLine<W>) {
    if (k % (4 * kPerLine<W>) == 0) {
      for (int64_t i = 0; i < burst; i++, next += 64) _mm_prefetch(next, _MM_HINT_T1);
    }
    add_line(sum, x + k * along, ldx, w + k * kPanel);
  }
  if constexpr (1 < kPerLine<W> && std::is_same_v<X, float>) {
    if (k < length) add_first(sum, x + k, ldx, w + k * kPanel);
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
    float* y = out.y + r * out.stride;
    if (out.width == kPanel) {
      store(y, finished(sum[r], out, y));
      continue;
    }
    float values[kPanel], bias[kPanel] = {}, before[kPanel] = {};
    Output padded = out;
    if (out.bias != nullptr) std::copy_n(out.bias, out.width, bias), padded.bias = bias;
    std::copy_n(y, out.width, before);
    store(values, finished(sum[r], padded, before));
    std::copy_n(values, out.width, y);
  }
}

// A tile of n rows, 1 to rows, from the inner element first on.
template <int rows, class X, class W>
inline void tile_of(int64_t n, const Output& out, const X* x, int64_t ldx, int64_t first, const W* w, int64_t length,
                    const char* next, int64_t burst) {
  if constexpr (rows > 1) {
    if (n < rows) return tile_of<rows - 1>(n, out, x, ldx, first, w, length, next, burst);
  }
  tile<rows>(out, x + first * step<rows, X>(), ldx, w, length, next, burst);
}

// In tiles of about equal height. Meanwhile the next piece, behind this one, is fetched into the cache.
template <class X, class W>
void panel_piece(const Output& all, const X* x, int64_t ldx, int64_t M, int64_t first, const W* w, int64_t length) {
  const int64_t tiles = tiles_of(M, kTile), burst = (3 + tiles) / tiles;
  const char* next = reinterpret_cast<const char*>(w + length * kPanel);
  for (int64_t t = 0; t < tiles; t++) {
    const Rows rows = rows_of_tile(M, t, tiles);
    Output out = all;
    out.y += rows.from * out.stride;
    tile_of<kTile>(rows.count, out, x + rows.from * ldx, ldx, first, w, length,
                   next + t * burst * (length / (4 * kPerLine<W>)) * 64, burst);
  }
}

// rows x 16 sums over an even number of inner elements; with onward they go on from y's.
template <int rows, class X>
inline void chain_tile(float* y, int64_t stride, bool onward, const X* x, int64_t ldx, const bfloat16* w,
                       int64_t length) {
  Sixteen sum[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) sum[r] = onward ? load(y + r * stride) : zero();
  for (int64_t k = 0; k < length; k += kGroup<bfloat16>) add_line(sum, x + k, ldx, w + k * kPanel);
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) store(y + r * stride, sum[r]);
}

// A tile of n rows, 1 to rows.
template <int rows, class X>
inline void chain_tile_of(int64_t n, float* y, int64_t stride, bool onward, const X* x, int64_t ldx, const bfloat16* w,
                          int64_t length) {
  if constexpr (rows > 1) {
    if (n < rows) return chain_tile_of<rows - 1>(n, y, stride, onward, x, ldx, w, length);
  }
  chain_tile<rows>(y, stride, onward, x, ldx, w, length);
}

template <class X>
void chain(const Sums& sums, const X* x, int64_t ldx, int64_t M, const Panels& w) {
  const int64_t tiles = tiles_of(M, kTile);
  for (int64_t p = 0; p < w.count; p++) {
    for (int64_t k = 0; k < w.K; k += kPiece) {
      for (int64_t t = 0; t < tiles; t++) {
        const Rows rows = rows_of_tile(M, t, tiles);
        chain_tile_of<kTile>(rows.count, sums.y + rows.from * sums.stride + p * kPanel, sums.stride,
                             sums.onward || k > 0, x + rows.from * ldx + k, ldx, w.data + p * w.size + k * kPanel,
                             std::min(kPiece, w.K - k));
      }
    }
  }
}
