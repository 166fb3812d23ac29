// Rows against two neighbouring panels by AMX. panel.cc includes this inside a namespace that has its instructions,
// each with the number of a tile register: zero, load and store of a tile whose rows lie one behind the other, and
// add_products<sums, x, w>, which is TDPBF16PS.
//
// An instruction adds the products of 32 inner elements, a step: Intel's Software Developer's Manual, volume 2, has a
// chain for the first elements of its pairs and one for the second ones, the first chain's sum plus the second's, and
// that added to the sums of the steps before. Elements behind K are zeros.

constexpr int64_t kTile = 16;  // rows of a tile register
constexpr int64_t kStep = 32;  // inner elements that an instruction takes: a row of it, 64 bytes
constexpr int64_t kSquare = 2 * kTile;

// Tile registers: the sums of the first and the second rows and panels, rows and weights of a step.
constexpr int kSums00 = 0, kSums01 = 1, kSums10 = 2, kSums11 = 3, kRows0 = 4, kRows1 = 5, kWeights0 = 6, kWeights1 = 7;

// How many rows of 64 bytes each tile register has: the operand of LDTILECFG.
struct alignas(64) Shape {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  Shape(int64_t first, int64_t second) {
    const int64_t of[] = {first, first, second, second, first, second, kTile, kTile};
    for (int i = 0; i < 8; i++) {
      if (of[i] > 0) bytes[i] = 64, rows[i] = static_cast<uint8_t>(of[i]);
    }
  }
};
static_assert(sizeof(Shape) == 64);

template <int tile>
void put_rows(const Output& out, int64_t rows, int64_t column) {
  alignas(64) float sums[kTile * kPanel];
  store<tile>(sums);
  for (int64_t r = 0; r < rows; r++) dot::put(dot::load(sums + r * kPanel), out, r, column);
}

// rows <= 32 times one panel or two: steps of packed rows x and of panels that lie size apart. last, where there is
// one, holds the weights of the last step, those of the second panel behind those of the first.
template <bool below, bool beside>
void square(const Output& out, int64_t rows, const bfloat16* x, const bfloat16* w, int64_t size, int64_t steps,
            const bfloat16* last) {
  const int64_t first = std::min(rows, kTile), second = rows - first;
  zero<kSums00>();
  if constexpr (beside) zero<kSums01>();
  if constexpr (below) zero<kSums10>();
  if constexpr (below && beside) zero<kSums11>();
  for (int64_t s = 0; s < steps; s++) {
    const bool cut = last != nullptr && s + 1 == steps;
    const bfloat16* weights = cut ? last : w + s * kStep * kPanel;
    load<kWeights0>(weights);
    load<kRows0>(x + s * rows * kStep);
    add_products<kSums00, kRows0, kWeights0>();
    if constexpr (beside) {
      load<kWeights1>(weights + (cut ? kStep * kPanel : size));
      add_products<kSums01, kRows0, kWeights1>();
    }
    if constexpr (below) {
      load<kRows1>(x + s * rows * kStep + first * kStep);
      add_products<kSums10, kRows1, kWeights0>();
    }
    if constexpr (below && beside) add_products<kSums11, kRows1, kWeights1>();
  }
  put_rows<kSums00>(out, first, 0);
  if constexpr (beside) put_rows<kSums01>(out, first, kPanel);
  if constexpr (!below) return;
  Output to = out;
  to.y += first * out.stride;
  if constexpr (below) put_rows<kSums10>(to, second, 0);
  if constexpr (below && beside) put_rows<kSums11>(to, second, kPanel);
}

// What is left of the panels from w on behind whole steps, pairs of inner elements; zeros behind them.
inline void copy_last(bfloat16* to, const bfloat16* w, int64_t size, int64_t panels, int64_t pairs) {
  std::fill_n(to, 2 * kStep * kPanel, bfloat16(0));
  for (int64_t p = 0; p < panels; p++) std::copy_n(w + p * size, pairs * 2 * kPanel, to + p * kStep * kPanel);
}

// The columns of the panels begin .. end of x w, x being packed by pack_rows.
inline void multiply(const Output& all, const bfloat16* x, int64_t ldx, int64_t M, const bfloat16* w, int64_t K,
                     int64_t begin, int64_t end) {
  const int64_t pieces = parts_of(K, kPiece), size = padded<bfloat16>(K) * kPanel;
  int64_t shaped = 0;  // rows that the tile registers are for
  alignas(64) bfloat16 last[2 * kStep * kPanel];
  for (int64_t panel = begin; panel < end; panel += 2) {
    const int64_t panels = std::min<int64_t>(2, end - panel);
    for (int64_t i = 0; i < pieces; i++) {
      const Part piece = piece_of(K, i, pieces, kStep);
      const int64_t steps = parts_of(piece.count, kStep), left = padded<bfloat16>(piece.count) % kStep;
      const bfloat16* here = w + panel * size + piece.from * kPanel;
      if (left > 0) copy_last(last, here + (steps - 1) * kStep * kPanel, size, panels, left / 2);
      Output out = part_of_output(all, panel, panels, i, pieces);
      for (int64_t row = 0; row < M; row += kSquare, out.y += kSquare * out.stride) {
        const int64_t rows = std::min(kSquare, M - row);
        if (rows != shaped) shape(Shape(std::min(rows, kTile), std::max<int64_t>(0, rows - kTile))), shaped = rows;
        const auto make = rows > kTile  ? panels == 2 ? square<true, true> : square<true, false>
                           : panels == 2 ? square<false, true>
                                        : square<false, false>;
        make(out, rows, x + row * ldx + piece.from * rows, here, size, steps, left > 0 ? last : nullptr);
      }
    }
  }
  release();
}

// A row of K numbers, as row r of a square of so many rows: [steps, rows, 32], zeros behind K.
template <class S>
void pack_row(bfloat16* to, const S* x, int64_t K, int64_t r, int64_t rows) {
  const auto at = [&](int64_t k) { return to + (k / kStep * rows + r) * kStep + k % kStep; };
  int64_t k = 0;
  for (; k + 8 <= K; k += 8) _mm_storeu_ps(reinterpret_cast<float*>(at(k)), pairs_of(x + k));
  for (; k < K; k++) round_to(*at(k), widened(x[k]));
  for (; k % kStep != 0; k++) *at(k) = 0;
}

// Numbers of a packed row.
inline int64_t packed_width(int64_t K) { return parts_of(K, kStep) * kStep; }

// The M rows of x from first on, square by square.
template <class R>
void pack_rows(const Loop& loop, bfloat16* to, const R& x, int64_t first, int64_t M, int64_t K) {
  const int64_t squares = parts_of(M, kSquare), width = packed_width(K);
  loop.run(squares, std::max<int64_t>(1, (1 << 12) / (K * kSquare)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * kSquare; row < std::min(M, end * kSquare); row += kSquare) {
      const int64_t rows = std::min(kSquare, M - row);
      make_rows(x, first + row, rows);
      for (int64_t r = 0; r < rows; r++) pack_row(to + row * width, x.x + (first + row + r) * x.stride, K, r, rows);
    }
  });
}
