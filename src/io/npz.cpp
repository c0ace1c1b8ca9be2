#include "io/npz.h"

#include <zip.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/check.h"
#include "io/files.h"
#include "io/memory.h"
#include "io/npy_values.h"
#include "io/text.h"

namespace topomask {

namespace {

constexpr std::string_view kSuffix = ".npy";

struct CloseEntry {
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};

std::string error_text(zip_error_t& error) {
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

// Whether an entry may unpack to what it declares: Deflate cannot expand by more than 1032 to 1.
bool plausible_size(const zip_stat_t& entry) {
  if (entry.comp_method == ZIP_CM_STORE) return entry.size <= entry.comp_size;
  constexpr std::uint64_t kRatio = 1040;  // with room for the smallest entries
  return entry.size / kRatio <= entry.comp_size;
}

}  // namespace

void NpzArchive::Close::operator()(struct zip* archive) const {
  zip_discard(archive);
}

NpzArchive::NpzArchive(std::string_view content, const std::string& name, const ReadOptions& options)
    : name_(name), limit_(unpacked_limit(content.size(), options, available_memory())) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(content.data(), content.size(), 0, &error);
  if (source != nullptr) {
    archive_.reset(zip_open_from_source(source, ZIP_RDONLY, &error));
    if (archive_ == nullptr) zip_source_free(source);
  }
  check(archive_ != nullptr, "{}: expected a zip archive (.npz), got {} bytes that are none: {}", name_,
        content.size(), error_text(error));
  zip_error_fini(&error);
  const zip_int64_t entries = zip_get_num_entries(archive_.get(), 0);
  for (zip_int64_t e = 0; e < entries; ++e) {
    const char* raw = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(e), ZIP_FL_ENC_RAW);
    const std::string_view entry = raw == nullptr ? "" : raw;
    if (entry.ends_with(kSuffix)) keys_.emplace_back(entry.substr(0, entry.size() - kSuffix.size()));
  }
}

bool NpzArchive::has(std::string_view key) const {
  return std::find(keys_.begin(), keys_.end(), key) != keys_.end();
}

std::string NpzArchive::place(const std::string& key) const {
  return fmt::format("{}, array {}", name_, quoted(key));
}

std::string NpzArchive::read_entry(const std::string& key, std::uint64_t most) const {
  check(has(key), "{}: expected an array '{}', got only {}", name_, key,
        quoted(fmt::format("{}", fmt::join(keys_, " "))));
  zip_stat_t stat;
  const zip_int64_t index =
      zip_name_locate(archive_.get(), (key + std::string(kSuffix)).c_str(), ZIP_FL_ENC_RAW);
  const bool found =
      index >= 0 && zip_stat_index(archive_.get(), static_cast<zip_uint64_t>(index), 0, &stat) == 0;
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
  check(found && (stat.valid & kNeeded) == kNeeded, "{}: the archive's directory is damaged", place(key));
  check(plausible_size(stat), "{}: it declares {} bytes, more than its {} packed bytes may unpack to",
        place(key), stat.size, stat.comp_size);
  const std::uint64_t wanted = std::min(most, std::uint64_t{stat.size});
  check(wanted <= limit_ - unpacked_,
        "{}: the archive unpacks to more than {} bytes; a larger max_file_size allows it", place(key),
        limit_);
  unpacked_ += wanted;
  const std::unique_ptr<zip_file_t, CloseEntry> entry(
      zip_fopen_index(archive_.get(), static_cast<zip_uint64_t>(index), 0));
  check(entry != nullptr, "{}: cannot be unpacked: {}", place(key), zip_strerror(archive_.get()));
  std::string content;
  // Piecewise, so that what is allocated is never far ahead of what the archive really holds.
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 24;
  while (content.size() < wanted) {
    const std::size_t before = content.size();
    content.resize(before + std::min(kPiece, wanted - before));
    const zip_int64_t got = zip_fread(entry.get(), content.data() + before, content.size() - before);
    check(got > 0, "{}: unpacking fails after {} of {} bytes: {}", place(key), before, stat.size,
          got < 0 ? zip_file_strerror(entry.get()) : "the archive is truncated");
    content.resize(before + static_cast<std::size_t>(got));
  }
  if (wanted < stat.size) return content;
  // The checksum is only verified by the read that meets the end.
  char beyond = 0;
  const zip_int64_t more = zip_fread(entry.get(), &beyond, 1);
  check(more == 0, "{}: unpacking fails after {} bytes: {}", place(key), stat.size,
        more < 0 ? zip_file_strerror(entry.get()) : "more than declared");
  return content;
}

NpyArray NpzArchive::read(const std::string& key) const {
  return parse_npy(read_entry(key), place(key));
}

std::optional<NpyArray> NpzArchive::read_if_supported(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  const std::string content = read_entry(key);
  if (!is_supported_dtype(parse_npy_header(content, place(key)).dtype)) return std::nullopt;
  return parse_npy(content, place(key));
}

std::optional<std::vector<std::int64_t>> NpzArchive::shape(const std::string& key) const {
  constexpr std::uint64_t kLongestHeader = 1 << 16;
  if (!has(key)) return std::nullopt;
  return parse_npy_header(read_entry(key, kLongestHeader), place(key)).shape;
}

std::map<std::string, NpyArray> read_npz_arrays(std::string_view content, const std::string& name,
                                                const ReadOptions& options) {
  const NpzArchive archive(content, name, options);
  std::map<std::string, NpyArray> arrays;
  for (const std::string& key : archive.keys()) {
    if (arrays.contains(key)) continue;
    if (std::optional<NpyArray> array = archive.read_if_supported(key))
      arrays.emplace(key, std::move(*array));
  }
  return arrays;
}

void write_npz(const std::string& path, const std::vector<std::pair<std::string, NpyArray>>& arrays) {
  check_replaceable(path);
  int code = 0;
  // libzip writes to a temporary file beside `path` and renames it when closing succeeds.
  std::unique_ptr<zip_t, decltype(&zip_discard)> archive(
      zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code), zip_discard);
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    fail("cannot write '{}': {}", path, error_text(error));
  }
  std::vector<std::string> contents;  // libzip reads the buffers when closing
  contents.reserve(arrays.size());
  for (const auto& [key, array] : arrays) {
    const std::string& content = contents.emplace_back(format_npy(array));
    zip_source_t* source = zip_source_buffer(archive.get(), content.data(), content.size(), 0);
    const zip_int64_t index =
        source == nullptr
            ? -1
            : zip_file_add(archive.get(), (key + std::string(kSuffix)).c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0 && source != nullptr) zip_source_free(source);
    check(index >= 0, "cannot write '{}', array '{}': {}", path, key, zip_strerror(archive.get()));
    const auto entry = static_cast<zip_uint64_t>(index);
    constexpr zip_uint16_t kMidnight = 0, kFirstOfJanuary1980 = 33;  // a fixed time: same arrays, same bytes
    const bool set = zip_set_file_compression(archive.get(), entry, ZIP_CM_STORE, 0) == 0 &&
                     zip_file_set_dostime(archive.get(), entry, kMidnight, kFirstOfJanuary1980, 0) == 0;
    check(set, "cannot write '{}', array '{}': {}", path, key, zip_strerror(archive.get()));
  }
  if (zip_close(archive.get()) != 0) fail("cannot write '{}': {}", path, zip_strerror(archive.get()));
  static_cast<void>(archive.release());  // closed, hence gone
}

namespace {

template <class Stored, class Value>
NpyArray array_of(std::string_view dtype, std::span<const Value> values) {
  NpyArray array{std::string(dtype), {static_cast<std::int64_t>(values.size())}, {}};
  if constexpr (std::is_same_v<Stored, Value>) {
    array.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  } else {
    array.bytes.resize(values.size() * sizeof(Stored));
    for (std::size_t k = 0; k < values.size(); ++k) {
      const auto stored = static_cast<Stored>(values[k]);
      std::memcpy(array.bytes.data() + k * sizeof(Stored), &stored, sizeof stored);
    }
  }
  return array;
}

template <class Value>
void write_csr(const std::string& path, std::int64_t rows, std::int64_t cols,
               std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices,
               std::span<const Value> data, std::string_view dtype) {
  const auto nonzeros = static_cast<std::int64_t>(indices.size());
  check(rows >= 0 && cols >= 0 && static_cast<std::int64_t>(indptr.size()) == rows + 1 &&
            indptr.front() == 0 && indptr.back() == nonzeros && data.size() == indices.size(),
        "write_scipy_csr: {} row pointers, {} indices and {} values do not make a {} x {} matrix",
        indptr.size(), nonzeros, data.size(), rows, cols);
  // SciPy wants row pointers and indices of one type.
  const bool narrow = std::max({nonzeros, rows, cols}) <= std::numeric_limits<std::int32_t>::max();
  const std::array<std::int64_t, 2> shape{rows, cols};
  write_npz(
      path,
      {{"indices", narrow ? array_of<std::int32_t>("<i4", indices) : array_of<std::int64_t>("<i8", indices)},
       {"indptr", narrow ? array_of<std::int32_t>("<i4", indptr) : array_of<std::int64_t>("<i8", indptr)},
       {"format", NpyArray{"|S3", {}, "csr"}},
       {"shape", array_of<std::int64_t>("<i8", std::span<const std::int64_t>(shape))},
       {"data", array_of<Value>(dtype, data)}});
}

}  // namespace

void write_scipy_csr(const std::string& path, std::int64_t rows, std::int64_t cols,
                     std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices,
                     std::span<const float> data) {
  write_csr(path, rows, cols, indptr, indices, data, "<f4");
}

void write_scipy_csr(const std::string& path, std::int64_t rows, std::int64_t cols,
                     std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices,
                     std::span<const double> data) {
  write_csr(path, rows, cols, indptr, indices, data, "<f8");
}

}  // namespace topomask
