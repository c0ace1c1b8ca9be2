#include "data/io/video_decoder.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/check.h"
#include "core/random.h"

namespace topomask {
namespace {

constexpr std::size_t kMostPackets = std::size_t{1} << 20;
constexpr int kBufferBytes = 1 << 16;

// Deletes through FFmpeg's functions, which take the address of a pointer.
template <class T, void (*free)(T**)>
struct FreeByAddress {
  void operator()(T* pointer) const { free(&pointer); }
};
using PacketPtr = std::unique_ptr<AVPacket, FreeByAddress<AVPacket, av_packet_free>>;
using FramePtr = std::unique_ptr<AVFrame, FreeByAddress<AVFrame, av_frame_free>>;
using CodecPtr = std::unique_ptr<AVCodecContext, FreeByAddress<AVCodecContext, avcodec_free_context>>;

struct FreeScaler {
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
};

std::string describe_status(int status) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(status, text, sizeof(text));
  return text;
}

// A file in memory as FFmpeg reads one. No protocol is involved, so that nothing else can be opened.
class MemoryInput {
 public:
  explicit MemoryInput(std::string_view content) : content_(content) {
    auto* buffer = static_cast<unsigned char*>(av_malloc(kBufferBytes));
    if (buffer != nullptr) context_ = avio_alloc_context(buffer, kBufferBytes, 0, this, read, nullptr, seek);
    if (context_ == nullptr) {
      av_free(buffer);
      throw std::bad_alloc();
    }
  }
  ~MemoryInput() {
    av_freep(&context_->buffer);  // which FFmpeg may have replaced
    avio_context_free(&context_);
  }
  MemoryInput(const MemoryInput&) = delete;
  MemoryInput& operator=(const MemoryInput&) = delete;
  AVIOContext* context() { return context_; }

 private:
  static int read(void* self_pointer, std::uint8_t* out, int size) {
    auto& self = *static_cast<MemoryInput*>(self_pointer);
    const std::size_t count =
        std::min(static_cast<std::size_t>(std::max(size, 0)), self.content_.size() - self.at_);
    if (count == 0) return AVERROR_EOF;
    std::memcpy(out, self.content_.data() + self.at_, count);
    self.at_ += count;
    return static_cast<int>(count);
  }

  static std::int64_t seek(void* self_pointer, std::int64_t offset, int whence) {
    auto& self = *static_cast<MemoryInput*>(self_pointer);
    const auto size = static_cast<std::int64_t>(self.content_.size());
    if ((whence & AVSEEK_SIZE) != 0) return size;
    whence &= ~AVSEEK_FORCE;
    if (whence == SEEK_CUR) offset += static_cast<std::int64_t>(self.at_);
    if (whence == SEEK_END) offset += size;
    if (offset < 0 || offset > size) return AVERROR(EINVAL);
    self.at_ = static_cast<std::size_t>(offset);
    return offset;
  }

  std::string_view content_;
  std::size_t at_ = 0;  // never beyond the end
  AVIOContext* context_ = nullptr;
};

// The compressed pictures of a video, in the order in which they are decoded.
struct VideoPackets {
  std::vector<PacketPtr> packets;
  std::vector<std::int64_t> times;  // when they are shown, ascending
  // Only the decoder knows their order, so the times are numbers and a picture's is known by counting.
  bool counted = false;
  CodecPtr decoder;
};

class ContainerReader {
 public:
  ContainerReader(std::string_view content, const std::string& name) : name_(name), input_(content) {
    // By default FFmpeg logs to the terminal, which a library must not do.
    static const bool quiet = [] {
      av_log_set_level(AV_LOG_QUIET);
      return true;
    }();
    static_cast<void>(quiet);
    format_ = avformat_alloc_context();
    if (format_ == nullptr) throw std::bad_alloc();
    format_->pb = input_.context();
    format_->flags |= AVFMT_FLAG_NOFILLIN;  // FFmpeg's guesses of missing times are wrong with B-frames
    AVDictionary* options = nullptr;
    // Formats that hold videos, and none that refers to other files.
    av_dict_set(&options, "format_whitelist", "mov,matroska,avi", 0);
    const int status =
        avformat_open_input(&format_, nullptr, nullptr, &options);  // frees the format if it fails
    av_dict_free(&options);
    check(status >= 0, "'{}' is no MP4, QuickTime, Matroska, WebM or AVI video: {}", name,
          describe_status(status));
  }
  ~ContainerReader() { avformat_close_input(&format_); }
  ContainerReader(const ContainerReader&) = delete;
  ContainerReader& operator=(const ContainerReader&) = delete;

  VideoPackets read(std::int64_t max_pixels) {
    require(avformat_find_stream_info(format_, nullptr));
    const int stream = av_find_best_stream(format_, AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
    check(stream >= 0, "'{}' holds no video", name_);
    for (unsigned i = 0; i < format_->nb_streams; ++i) {
      if (static_cast<int>(i) != stream) format_->streams[i]->discard = AVDISCARD_ALL;
    }
    VideoPackets video;
    read_packets(stream, video);
    const AVCodecParameters& parameters = *format_->streams[stream]->codecpar;
    const AVCodec* codec = avcodec_find_decoder(parameters.codec_id);
    check(codec != nullptr, "'{}': there is no decoder for its pictures ({})", name_,
          avcodec_get_name(parameters.codec_id));
    video.decoder.reset(avcodec_alloc_context3(codec));
    if (video.decoder == nullptr) throw std::bad_alloc();
    require(avcodec_parameters_to_context(video.decoder.get(), &parameters));
    video.decoder->thread_count = 1;  // files are decoded side by side
    video.decoder->max_pixels = max_pixels;
    require(avcodec_open2(video.decoder.get(), codec, nullptr));
    return video;
  }

 private:
  void require(int status) const {
    check(status >= 0, "'{}' is a damaged video: {}", name_, describe_status(status));
  }

  void read_packets(int stream, VideoPackets& video) {
    bool timed = true, all_keys = true;
    while (true) {
      PacketPtr packet(av_packet_alloc());
      if (packet == nullptr) throw std::bad_alloc();
      const int status = av_read_frame(format_, packet.get());
      if (status == AVERROR_EOF) break;
      require(status);
      if (packet->stream_index != stream) continue;
      check(video.packets.size() < kMostPackets, "'{}': expected at most {} frames", name_, kMostPackets);
      timed = timed && packet->pts != AV_NOPTS_VALUE;
      all_keys = all_keys && (packet->flags & AV_PKT_FLAG_KEY) != 0;
      video.packets.push_back(std::move(packet));
    }
    check(!video.packets.empty(), "'{}' holds a video without frames", name_);
    // AVI has no times. Its pictures may be stored in another order, unless each stands for itself.
    video.counted = !timed && !all_keys;
    std::int64_t number = 0;
    for (const PacketPtr& packet : video.packets) {
      if (!timed) packet->pts = packet->dts = number++;
      if ((packet->flags & AV_PKT_FLAG_DISCARD) == 0) video.times.push_back(packet->pts);
    }
    check(!video.times.empty(), "'{}' holds a video without frames", name_);
    std::sort(video.times.begin(), video.times.end());
  }

  const std::string& name_;
  MemoryInput input_;
  AVFormatContext* format_ = nullptr;
};

class ClipDecoder {
 public:
  ClipDecoder(VideoPackets video, const std::string& name, const ClipChoice& choice, std::uint8_t* out)
      : video_(std::move(video)), name_(name), choice_(choice), out_(out), frame_(av_frame_alloc()) {
    if (frame_ == nullptr) throw std::bad_alloc();
    const auto count = static_cast<std::int64_t>(video_.times.size());
    const std::int64_t span = std::int64_t{choice.frames - 1} * choice.stride + 1;
    const std::int64_t last_start = std::max<std::int64_t>(0, count - span);
    std::int64_t start = last_start / 2;
    if (choice.crop.seed) {
      constexpr std::uint32_t kClip = 0x434C4950;  // "CLIP"
      start = static_cast<std::int64_t>(
          RandomStream(*choice.crop.seed, kClip).next_below(static_cast<std::uint64_t>(last_start) + 1));
    }
    for (std::int64_t i = 0; i < choice.frames; ++i)
      wanted_.push_back(
          video_.times[static_cast<std::size_t>(std::min(start + i * choice.stride, count - 1))]);
  }

  void decode() {
    for (std::size_t i = first_packet(); i < video_.packets.size() && !done(); ++i) {
      require(avcodec_send_packet(video_.decoder.get(), video_.packets[i].get()));
      receive_frames();
    }
    if (!done()) {
      require(avcodec_send_packet(video_.decoder.get(), nullptr));  // what the decoder still holds
      receive_frames();
    }
    check(filled_ > 0, "'{}' is a damaged video: not one frame of the clip can be decoded", name_);
    const std::size_t bytes = frame_bytes();
    for (; !done(); ++filled_) std::memcpy(out_ + filled_ * bytes, out_ + (filled_ - 1) * bytes, bytes);
  }

 private:
  void require(int status) const {
    check(status >= 0, "'{}' is a damaged video: {}", name_, describe_status(status));
  }
  bool done() const { return filled_ == wanted_.size(); }
  std::size_t frame_bytes() const { return std::size_t{3} * choice_.size * choice_.size; }

  // The last picture that stands for itself and is not after the clip's first frame.
  std::size_t first_packet() const {
    if (video_.counted) return 0;
    for (std::size_t i = video_.packets.size(); i-- > 0;) {
      const AVPacket& packet = *video_.packets[i];
      if ((packet.flags & AV_PKT_FLAG_KEY) != 0 && packet.pts <= wanted_.front()) return i;
    }
    return 0;
  }

  void receive_frames() {
    while (!done()) {
      const int status = avcodec_receive_frame(video_.decoder.get(), frame_.get());
      if (status == AVERROR(EAGAIN) || status == AVERROR_EOF) return;
      require(status);
      const std::int64_t time = video_.counted ? received_++ : frame_->pts;
      if (time >= wanted_[filled_]) write_frame(time);
    }
  }

  void write_frame(std::int64_t time) {
    check(frame_->decode_error_flags == 0 && (frame_->flags & AV_FRAME_FLAG_CORRUPT) == 0,
          "'{}' is a damaged video: a frame of the clip is incomplete", name_);
    const RgbImage image = to_rgb();
    const ImageExtent extent{image.width, image.height};
    const Box box = choice_.crop.seed ? random_crop(extent, choice_.crop.min_area, *choice_.crop.seed)
                                      : centre_square(extent);
    std::uint8_t* first = out_ + filled_ * frame_bytes();
    resize_box(image, box, choice_.size, choice_.size, first);
    for (++filled_; !done() && wanted_[filled_] <= time; ++filled_)
      std::memcpy(out_ + filled_ * frame_bytes(), first, frame_bytes());
  }

  RgbImage to_rgb() {
    RgbImage image{frame_->width, frame_->height, {}};
    check(image.width > 0 && image.height > 0 &&
              static_cast<std::int64_t>(image.width) * image.height <= choice_.max_pixels,
          "'{}': expected frames of 1 to {} pixels, got {} x {}", name_, choice_.max_pixels, image.width,
          image.height);
    scaler_.reset(sws_getCachedContext(scaler_.release(), image.width, image.height,
                                       static_cast<AVPixelFormat>(frame_->format), image.width, image.height,
                                       AV_PIX_FMT_RGB24, SWS_POINT | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT,
                                       nullptr, nullptr, nullptr));
    check(scaler_ != nullptr, "'{}': its frames cannot be converted to red, green and blue", name_);
    // Vector code of the converter writes whole registers: rows are padded, then packed.
    const int stride = (3 * image.width + 63) / 64 * 64;
    std::vector<std::uint8_t> padded(static_cast<std::size_t>(stride) * image.height + 64);
    std::uint8_t* planes[4] = {padded.data(), nullptr, nullptr, nullptr};
    const int strides[4] = {stride, 0, 0, 0};
    require(sws_scale(scaler_.get(), frame_->data, frame_->linesize, 0, image.height, planes, strides));
    const std::size_t row_bytes = std::size_t{3} * image.width;
    image.pixels.resize(row_bytes * image.height);
    for (int row = 0; row < image.height; ++row)
      std::memcpy(image.pixels.data() + row_bytes * row,
                  padded.data() + static_cast<std::size_t>(stride) * row, row_bytes);
    return image;
  }

  VideoPackets video_;
  const std::string& name_;
  const ClipChoice& choice_;
  std::uint8_t* out_;
  FramePtr frame_;
  std::unique_ptr<SwsContext, FreeScaler> scaler_;
  std::vector<std::int64_t> wanted_;  // [frames], when the frames of the clip are shown
  std::size_t filled_ = 0;            // frames written
  std::int64_t received_ = 0;         // frames that the decoder has given, where they are counted
};

}  // namespace
}  // namespace topomask

void topomask_decode_clip(std::string_view content, const std::string& name,
                          const topomask::ClipChoice& choice, std::uint8_t* out) {
  topomask::ContainerReader reader(content, name);
  topomask::ClipDecoder(reader.read(choice.max_pixels), name, choice, out).decode();
}
