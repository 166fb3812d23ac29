// Rows against neighbouring panels. panel.cc includes this once for each instruction set, inside a namespace that says
// what Sixteen is, how many rows make a tile and how many sums the registers hold. All of them make the same chain of
// fused multiply-adds for an element of the result, and so the same bits.

// Panels that a tile of so many rows takes at once: a number of x is then read once for all of them.
constexpr int abreast(int64_t rows) { return static_cast<int>(std::clamp<int64_t>(kSums / rows, 1, 4)); }

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

// sum += x w for one inner element, or for a pair.
template <int rows, int panels, class X, class Weights>
[[gnu::always_inline]] inline void add_products(Sixteen (&sum)[panels][rows], const X* x, int64_t ldx,
                                                const Weights (&w)[panels]) {
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++) multiply_add(sum[p][r], x + r * ldx, w[p]);
  }
}
template <int rows, int panels>
[[gnu::always_inline]] inline void add_first(Sixteen (&sum)[panels][rows], const float* x, int64_t ldx,
                                             const bfloat16* const (&w)[panels], int64_t at) {
  Sixteen v[panels];
#pragma GCC unroll 4
  for (int p = 0; p < panels; p++) v[p] = first_of_pairs(w[p] + at);
  add_products(sum, x, ldx, v);
}

// sum += x w for the inner elements of the line at w[p] + at of each panel.
template <int rows, int panels>
[[gnu::always_inline]] inline void add_line(Sixteen (&sum)[panels][rows], const float* x, int64_t ldx,
                                            const float* const (&w)[panels], int64_t at) {
  Sixteen v[panels];
#pragma GCC unroll 4
  for (int p = 0; p < panels; p++) v[p] = load(w[p] + at);
  add_products(sum, x, ldx, v);
}
template <int rows, int panels>
[[gnu::always_inline]] inline void add_line(Sixteen (&sum)[panels][rows], const float* x, int64_t ldx,
                                            const bfloat16* const (&w)[panels], int64_t at) {
  Sixteen v[panels];
#pragma GCC unroll 4
  for (int p = 0; p < panels; p++) v[p] = second_of_pairs(w[p] + at);
  add_products(sum, x + 1, ldx, v);
  add_first(sum, x, ldx, w, at);
}
// The same by the instruction for pairs.
template <int rows, int panels>
[[gnu::always_inline]] inline void add_line(Sixteen (&sum)[panels][rows], const bfloat16* x, int64_t ldx,
                                            const bfloat16* const (&w)[panels], int64_t at) {
  decltype(load_pairs(w[0])) v[panels];
#pragma GCC unroll 4
  for (int p = 0; p < panels; p++) v[p] = load_pairs(w[p] + at);
  add_products(sum, x, ldx, v);
}

[[gnu::always_inline]] inline Sixteen finished(Sixteen v, const Output& out, const float* bias, const float* y) {
  if (bias != nullptr) v = add(v, load(bias));
  if (out.add) v = add(v, load(y));
  return out.rounded ? to_half(v) : v;
}

// The sums of a row's last panel, which out's width cuts.
[[gnu::noinline]] inline void put_cut(Sixteen sum, const Output& out, int64_t row, int64_t column) {
  const int64_t width = out.width - column;
  float* y = out.y + row * out.stride + column;
  float values[kPanel], bias[kPanel] = {}, before[kPanel] = {};
  if (out.bias != nullptr) std::copy_n(out.bias + column, width, bias);
  std::copy_n(y, width, before);
  store(values, finished(sum, out, out.bias != nullptr ? bias : nullptr, before));
  std::copy_n(values, width, y);
}
// The sums of a row for the panel from column on.
[[gnu::always_inline]] inline void put(Sixteen sum, const Output& out, int64_t row, int64_t column) {
  if (out.width - column < kPanel) return put_cut(sum, out, row, column);
  float* y = out.y + row * out.stride + column;
  store(y, finished(sum, out, out.bias != nullptr ? out.bias + column : nullptr, y));
}

// What a tile is multiplied with: of panels that lie size apart, length inner elements. burst lines of each are fetched
// for every four that are read, those of the first panel at next.
template <class W>
struct Weights {
  const W* w;
  int64_t size, length;
  const W* next;
  int64_t burst;
};

// rows x panels x 16 sums over w's inner elements, an even number where x is bfloat16.
template <int rows, int panels, class X, class W>
[[gnu::noinline]] void tile(const Output& out, const X* x, int64_t ldx, const Weights<W>& from) {
  constexpr int64_t along = step<rows, X>(), line = kPerLine<W> * kPanel;
  if constexpr (kPacked<X>) ldx = 2;
  const W* w[panels];
  Sixteen sum[panels][rows];
#pragma GCC unroll 4
  for (int p = 0; p < panels; p++) {
    w[p] = from.w + p * from.size;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) sum[p][r] = zero();
  }
  const W* next = from.next;
  int64_t k = 0;
  for (; k + kPerLine<W> <= from.length; k += kPerLine<W>) {
    if (k % (4 * kPerLine<W>) == 0) {
      for (int64_t i = 0; i < from.burst; i++, next += line) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) _mm_prefetch(reinterpret_cast<const char*>(next + p * from.size), _MM_HINT_T1);
      }
    }
    add_line(sum, x + k * along, ldx, w, k * kPanel);
  }
  if constexpr (1 < kPerLine<W> && std::is_same_v<X, float>) {
    if (k < from.length) add_first(sum, x + k, ldx, w, k * kPanel);
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++) put(sum[p][r], out, r, p * kPanel);
  }
}

// A tile of n rows, 1 to rows, and m panels, 1 to panels, from the inner element first on.
template <int rows, int panels, class X, class W>
inline void tile_of(int64_t n, int64_t m, const Output& out, const X* x, int64_t ldx, int64_t first,
                    const Weights<W>& w) {
  if constexpr (rows > 1) {
    if (n < rows) return tile_of<rows - 1, abreast(rows - 1)>(n, m, out, x, ldx, first, w);
  }
  if constexpr (panels > 1) {
    if (m < panels) return tile_of<rows, panels - 1>(n, m, out, x, ldx, first, w);
  }
  tile<rows, panels>(out, x + first * step<rows, X>(), ldx, w);
}

// The columns of the panels begin .. end of x w. Several panels abreast, piece by piece of K, tile by tile; the tiles
// meanwhile fetch what is read next into the cache.
template <class X, class W>
void multiply(const Output& all, const X* x, int64_t ldx, int64_t M, const W* w, int64_t K, int64_t begin,
              int64_t end) {
  const int64_t tiles = parts_of(M, kTile), groups = parts_of(end - begin, abreast(parts_of(M, tiles)));
  const int64_t pieces = parts_of(K, kPiece), size = padded<W>(K) * kPanel;
  for (int64_t g = 0; g < groups; g++) {
    const Part group = part_of(end - begin, g, groups);
    const int64_t panel = begin + group.from;
    for (int64_t i = 0; i < pieces; i++) {
      const Part piece = piece_of(K, i, pieces, kGroup<W>);
      const int64_t length = kPacked<X> ? padded<W>(piece.count) : piece.count;
      const W* here = w + panel * size + piece.from * kPanel;
      const W* next = i + 1 < pieces ? here + length * kPanel : w + (panel + group.count) * size;
      const Output out = part_of_output(all, panel, group.count, i, pieces);
      for (int64_t t = 0; t < tiles; t++) {
        const Part rows = part_of(M, t, tiles);
        Output to = out;
        to.y += rows.from * out.stride;
        const int64_t burst = parts_of(4, tiles), lines = length / (4 * kPerLine<W>)*t * burst;
        tile_of<kTile, abreast(kTile)>(rows.count, group.count, to, x + rows.from * ldx, ldx, piece.from,
                                       Weights<W>{here, size, length, next + lines * kPerLine<W> * kPanel, burst});
      }
    }
  }
}

// rows x panels x 16 sums over the inner elements begin .. end of the panels from panel on; with onward they go on from
// y's.
template <int rows, int panels, class X>
[[gnu::noinline]] void chain_tile(float* y, int64_t stride, bool onward, const X* x, int64_t ldx, const Panels& w,
                                  int64_t panel, int64_t begin, int64_t end) {
  Sixteen sum[panels][rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++) sum[p][r] = onward ? load(y + r * stride + p * kPanel) : zero();
  }
  int64_t i = begin / w.piece;
  for (int64_t k = begin; k < end; i++) {
    const bfloat16* at[panels];
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++) at[p] = w.at[(panel + p) * w.pieces + i] - i * w.piece * kPanel;
    for (const int64_t last = std::min(end, (i + 1) * w.piece); k < last; k += kGroup<bfloat16>)
      add_line(sum, x + k, ldx, at, k * kPanel);
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++) store(y + r * stride + p * kPanel, sum[p][r]);
  }
}

// A tile of n rows, 1 to rows, and m panels, 1 to panels.
template <int rows, int panels, class X>
inline void chain_tile_of(int64_t n, int64_t m, float* y, int64_t stride, bool onward, const X* x, int64_t ldx,
                          const Panels& w, int64_t panel, int64_t begin, int64_t end) {
  if constexpr (rows > 1) {
    if (n < rows)
      return chain_tile_of<rows - 1, abreast(rows - 1)>(n, m, y, stride, onward, x, ldx, w, panel, begin, end);
  }
  if constexpr (panels > 1) {
    if (m < panels) return chain_tile_of<rows, panels - 1>(n, m, y, stride, onward, x, ldx, w, panel, begin, end);
  }
  chain_tile<rows, panels>(y, stride, onward, x, ldx, w, panel, begin, end);
}

template <class X>
void chain(const Sums& sums, const X* x, int64_t ldx, int64_t M, const Panels& w) {
  const int64_t tiles = parts_of(M, kTile), groups = parts_of(w.count, abreast(parts_of(M, tiles)));
  for (int64_t g = 0; g < groups; g++) {
    const Part group = part_of(w.count, g, groups);
    for (int64_t k = 0; k < w.K; k += kPiece) {
      for (int64_t t = 0; t < tiles; t++) {
        const Part rows = part_of(M, t, tiles);
        chain_tile_of<kTile, abreast(kTile)>(
            rows.count, group.count, sums.y + rows.from * sums.stride + group.from * kPanel, sums.stride,
            sums.onward || k > 0, x + rows.from * ldx, ldx, w, group.from, k, std::min(k + kPiece, w.K));
      }
    }
  }
}
