/* What every library has in C++17 and later, on top of its headers in C: errors, views, launches, owners.
 *
 * Nothing here throws but what is called or_throw, and nothing allocates but explain_choice; builds with -fno-exceptions
 * and -fno-rtti. Views are one pointer to data of the library, which stays as long as the program. What a function does, and
 * when it may be called, is said in kiln_launch.h at the function of the same name.
 */
#ifndef KILN_RUNTIME_HPP
#define KILN_RUNTIME_HPP

#include <kiln/kiln_launch.h>
#include <kiln/kiln_types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#ifdef __cpp_exceptions
#include <stdexcept>
#endif

struct ihipStream_t; /* what hipStream_t points to */

namespace kiln {

/* -- what a call came to */

/* As with std::error_code: true where something went wrong. */
class [[nodiscard]] error {
public:
    constexpr error() noexcept = default;
    constexpr error(int status) noexcept : status_(status) {}

    constexpr explicit operator bool() const noexcept { return status_ != 0; }
    /* One of enum kiln_status, or above 0 a driver's own code. */
    constexpr int status() const noexcept { return status_; }
    /* "KILN_ERROR_NO_IMAGE", and a sentence. */
    std::string_view name() const noexcept { return kiln_status_name(status_); }
    std::string_view text() const noexcept { return kiln_status_text(status_); }
    /* A sentence with names and numbers; to be read in the thread that made the call, before its next failure. */
    std::string_view detail() const noexcept
    {
        const kiln_error &last = *kiln_last_error();
        return last.status == status_ && status_ != 0 ? std::string_view(last.detail) : text();
    }

    friend constexpr bool operator==(error a, error b) noexcept { return a.status_ == b.status_; }
    friend constexpr bool operator!=(error a, error b) noexcept { return a.status_ != b.status_; }

private:
    int status_ = 0;
};

/* A value, or why there is none. */
template <typename T>
class [[nodiscard]] result {
public:
    using value_type = T;

    constexpr result(T value) : value_(std::move(value)) {}
    constexpr result(kiln::error why) noexcept : error_(why) {}

    constexpr explicit operator bool() const noexcept { return value_.has_value(); }
    constexpr kiln::error error() const noexcept { return error_; }
    /* Only where there is one. */
    constexpr const T &operator*() const & noexcept { return *value_; }
    constexpr T &operator*() & noexcept { return *value_; }
    constexpr T &&operator*() && noexcept { return *std::move(value_); }
    constexpr const T *operator->() const noexcept { return &*value_; }

private:
    std::optional<T> value_;
    kiln::error error_;
};

#ifdef __cpp_exceptions
/* A failed call, for programs that throw. */
class failure : public std::runtime_error {
public:
    explicit failure(kiln::error why)
        : std::runtime_error(std::string(why.name()).append(": ").append(why.detail())), error_(why)
    {
    }
    kiln::error error() const noexcept { return error_; }

private:
    kiln::error error_;
};

inline void or_throw(error outcome)
{
    if (outcome) {
        throw failure(outcome);
    }
}

template <typename T>
T or_throw(result<T> outcome)
{
    or_throw(outcome.error());
    return *std::move(outcome);
}
#endif

/* -- what there is */

namespace detail {

inline std::string_view text(const char *given) noexcept { return given != nullptr ? given : std::string_view(); }

/* Views over pointers, in a table or by a function. What is not linked has no pointer, and is passed over. */
template <typename View>
class views {
public:
    using pointee = typename View::c_type;
    using function = const pointee *(*)(std::size_t);

    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
#if __cplusplus >= 202002L
        using iterator_concept = std::forward_iterator_tag;
#endif
        using value_type = View;
        using difference_type = std::ptrdiff_t;
        using pointer = void;
        using reference = View;

        constexpr iterator() noexcept = default;
        View operator*() const noexcept { return View(*of_.at(index_)); }
        iterator &operator++() noexcept
        {
            index_++;
            pass_over();
            return *this;
        }
        iterator operator++(int) noexcept
        {
            const iterator before = *this;
            ++*this;
            return before;
        }
        friend bool operator==(const iterator &a, const iterator &b) noexcept { return a.index_ == b.index_; }
        friend bool operator!=(const iterator &a, const iterator &b) noexcept { return a.index_ != b.index_; }

    private:
        friend class views;
        iterator(const views &of, std::size_t index) noexcept : of_(of), index_(index) { pass_over(); }
        void pass_over() noexcept
        {
            while (index_ < of_.slots_ && of_.at(index_) == nullptr) {
                index_++;
            }
        }

        views of_;
        std::size_t index_ = 0;
    };

    constexpr views() noexcept = default;
    constexpr views(const pointee *const *table, std::size_t slots) noexcept : table_(table), slots_(slots) {}
    constexpr views(function find, std::size_t slots) noexcept : find_(find), slots_(slots) {}

    iterator begin() const noexcept { return iterator(*this, 0); }
    iterator end() const noexcept { return iterator(*this, slots_); }
    bool empty() const noexcept { return begin() == end(); }
    std::size_t size() const noexcept { return static_cast<std::size_t>(std::distance(begin(), end())); }

private:
    const pointee *at(std::size_t slot) const noexcept { return table_ != nullptr ? table_[slot] : find_(slot); }

    const pointee *const *table_ = nullptr;
    function find_ = nullptr;
    std::size_t slots_ = 0;
};

/* A name as C wants it. No declared name is as long as the buffer, so that a longer one is not found. */
class c_name {
public:
    explicit c_name(std::string_view name) noexcept
    {
        if (name.size() < sizeof text_) {
            std::memcpy(text_, name.data(), name.size());
        }
    }
    const char *get() const noexcept { return text_; }

private:
    char text_[256] = {};
};

} // namespace detail

/* An image; what has no function here is in the record behind ->. */
class image_view {
public:
    using c_type = kiln_image;

    explicit image_view(const kiln_image &image) noexcept : c_(&image) {}
    const kiln_image &c() const noexcept { return *c_; }
    const kiln_image *operator->() const noexcept { return c_; }

    std::string_view id() const noexcept { return c_->id; }
    std::string_view variant() const noexcept { return c_->variant; }
    std::string_view group() const noexcept { return c_->group; }
    std::string_view kernel() const noexcept { return c_->kernel; }
    std::string_view dtype() const noexcept { return c_->dtype; }
    std::string_view block() const noexcept { return c_->block; }
    std::string_view target() const noexcept { return c_->target; }
    std::string_view entry() const noexcept { return c_->entry; }
    /* Of PTX only, else empty. */
    std::string_view ptx_isa() const noexcept { return detail::text(c_->ptx_isa); }
    span<const std::byte> data() const noexcept { return { static_cast<const std::byte *>(c_->data), c_->size }; }
    span<const kiln_parameter> parameters() const noexcept { return { c_->parameters, c_->parameter_count }; }
    span<const kiln_constant> constants() const noexcept { return { c_->constants, c_->constant_count }; }
    [[nodiscard]] bool verify() const noexcept { return kiln_image_verify(c_); }

    friend bool operator==(image_view a, image_view b) noexcept { return a.c_ == b.c_; }
    friend bool operator!=(image_view a, image_view b) noexcept { return a.c_ != b.c_; }

private:
    const kiln_image *c_;
};

/* A variant, with the images that the program has linked. */
class variant_view {
public:
    using c_type = kiln_variant;

    explicit variant_view(const kiln_variant &variant) noexcept : c_(&variant) {}
    const kiln_variant &c() const noexcept { return *c_; }
    const kiln_variant *operator->() const noexcept { return c_; }

    std::string_view name() const noexcept { return c_->name; }
    std::string_view base() const noexcept { return c_->base; }
    std::string_view group() const noexcept { return c_->group; }
    std::string_view kernel() const noexcept { return c_->kernel; }
    std::string_view dtype() const noexcept { return c_->dtype; }
    std::string_view block() const noexcept { return c_->block; }
    /* Empty for a variant that serves every call. */
    std::string_view select() const noexcept { return detail::text(c_->select); }
    span<const kiln_argument> arguments() const noexcept { return { c_->arguments, c_->argument_count }; }
    detail::views<image_view> images() const noexcept { return { c_->images, c_->image_count }; }

    friend bool operator==(variant_view a, variant_view b) noexcept { return a.c_ == b.c_; }
    friend bool operator!=(variant_view a, variant_view b) noexcept { return a.c_ != b.c_; }

private:
    const kiln_variant *c_;
};

/* A group, with the variants that the program has linked. */
class group_view {
public:
    using c_type = kiln_group;

    explicit group_view(const kiln_group &group) noexcept : c_(&group) {}
    const kiln_group &c() const noexcept { return *c_; }
    const kiln_group *operator->() const noexcept { return c_; }

    std::string_view name() const noexcept { return c_->name; }
    bool is_uniform() const noexcept { return c_->is_uniform; }
    detail::views<variant_view> variants() const noexcept { return { c_->variants, c_->variant_count }; }

    friend bool operator==(group_view a, group_view b) noexcept { return a.c_ == b.c_; }
    friend bool operator!=(group_view a, group_view b) noexcept { return a.c_ != b.c_; }

private:
    const kiln_group *c_;
};

/* All of them, in order of declaration. Whoever calls one of these, or of the three below, links every image. */
inline detail::views<image_view> images() noexcept { return { &kiln_image_at, kiln_image_count() }; }
inline detail::views<variant_view> variants() noexcept { return { &kiln_variant_at, kiln_variant_count() }; }
inline detail::views<group_view> groups() noexcept { return { &kiln_group_at, kiln_group_count() }; }

[[nodiscard]] inline std::optional<image_view> find_image(std::string_view variant, std::string_view target) noexcept
{
    const kiln_image *found = kiln_image_find(detail::c_name(variant).get(), detail::c_name(target).get());
    return found != nullptr ? std::optional(image_view(*found)) : std::nullopt;
}

[[nodiscard]] inline std::optional<variant_view> find_variant(std::string_view name) noexcept
{
    const kiln_variant *found = kiln_variant_find(detail::c_name(name).get());
    return found != nullptr ? std::optional(variant_view(*found)) : std::nullopt;
}

[[nodiscard]] inline std::optional<group_view> find_group(std::string_view name) noexcept
{
    const kiln_group *found = kiln_group_find(detail::c_name(name).get());
    return found != nullptr ? std::optional(group_view(*found)) : std::nullopt;
}

/* -- launches */

/* A stream of CUDA (CUstream, cudaStream_t) or HIP (hipStream_t); by default, or nullptr, the default stream. */
class stream {
public:
    constexpr stream() noexcept = default;
    constexpr stream(std::nullptr_t) noexcept {}
    constexpr stream(CUstream_st *given) noexcept : c_(given) {}
    stream(ihipStream_t *given) noexcept : c_(reinterpret_cast<CUstream_st *>(given)) {}

    constexpr CUstream_st *get() const noexcept { return c_; }

private:
    CUstream_st *c_ = nullptr;
};

namespace detail {

/* What is known of an argument struct; of each that is generated, and of those in C. */
template <typename Call>
struct call {
    static constexpr bool is_known = false;
    static constexpr bool is_group = false;
};

struct variants_call {
    static constexpr bool is_known = true;
    static constexpr bool is_group = false;
};

struct group_call {
    static constexpr bool is_known = true;
    static constexpr bool is_group = true;
};

/* As far as it can be said of the whole; where members lie is asserted one by one. */
template <typename Call, typename C>
inline constexpr bool is_laid_out_like = std::is_standard_layout_v<Call> && sizeof(Call) == sizeof(C);

template <typename Call>
using if_known = std::enable_if_t<call<Call>::is_known, int>;
template <typename Call>
using if_group = std::enable_if_t<call<Call>::is_group, int>;

/* The struct of a group for a dtype, and the choice among some. */
template <kiln_dtype Of, typename Args>
struct for_dtype {
    static constexpr kiln_dtype dtype = Of;
    using type = Args;
};

template <kiln_dtype Wanted, typename First, typename... Others>
struct pick {
    using type = typename pick<Wanted, Others...>::type;
};

template <kiln_dtype Wanted, typename Args, typename... Others>
struct pick<Wanted, for_dtype<Wanted, Args>, Others...> {
    using type = Args;
};

template <kiln_dtype Wanted, kiln_dtype Last, typename Args>
struct pick<Wanted, for_dtype<Last, Args>> {
    static_assert(Wanted == Last, "the kernel was not built for elements of this type; of a type of your own say by "
                                  "DataTypeName what it holds");
    using type = Args;
};

template <kiln_dtype Wanted, typename Args>
struct pick<Wanted, for_dtype<Wanted, Args>> {
    using type = Args;
};

} // namespace detail

/* Launches a variant or a group, whichever the struct belongs to. */
template <typename Call, detail::if_known<Call> = 0>
error launch(const Call &args, stream on = {}) noexcept
{
    if constexpr (detail::call<Call>::is_group) {
        return kiln_launch_group(detail::call<Call>::group(), &args, on.get());
    } else {
        const auto variants = detail::call<Call>::variants();
        return variants.size() == 1 ? kiln_launch_variant(variants[0], &args, on.get())
                                    : kiln_launch_first(variants.data(), variants.size(), &args, on.get());
    }
}

struct launch_options {
    stream on = {};
    std::optional<std::array<std::uint32_t, 3>> grid = {}; /* in place of what the grid's expressions give */
    std::optional<image_view> image = {};                  /* one of the variant's, in place of the one for the device */
};

/* Launches what was looked up; args points to its argument struct, or that of its group. */
inline error launch(variant_view variant, const void *args, const launch_options &options = {}) noexcept
{
    kiln_launch_options c = {};
    c.struct_bytes = sizeof c;
    c.stream = options.on.get();
    c.grid = options.grid ? options.grid->data() : nullptr;
    c.image = options.image ? &options.image->c() : nullptr;
    return kiln_launch(&variant.c(), args, &c);
}

inline error launch(group_view group, const void *args, stream on = {}) noexcept
{
    return kiln_launch_group(&group.c(), args, on.get());
}

/* What a group's launch would do. */
struct choice {
    variant_view variant;
    std::optional<image_view> image; /* none for an empty grid */
    std::array<std::uint32_t, 3> grid;
};

namespace detail {

inline result<choice> choose(const kiln_group *group, const void *args) noexcept
{
    kiln_choice c = {};
    const int status = kiln_choose(group, args, &c);
    if (status != 0) {
        return kiln::error(status);
    }
    return kiln::choice{ variant_view(*c.variant),
        c.image != nullptr ? std::optional(image_view(*c.image)) : std::nullopt, { c.grid[0], c.grid[1], c.grid[2] } };
}

} // namespace detail

template <typename Call, detail::if_group<Call> = 0>
result<choice> choose(const Call &args) noexcept
{
    return detail::choose(detail::call<Call>::group(), &args);
}

inline result<choice> choose(group_view group, const void *args) noexcept
{
    return detail::choose(&group.c(), args);
}

/* The variants that a struct's launch has to choose from. */
template <typename Call, detail::if_known<Call> = 0>
detail::views<variant_view> variants() noexcept
{
    if constexpr (detail::call<Call>::is_group) {
        const kiln_group *group = detail::call<Call>::group();
        return group != nullptr ? group_view(*group).variants() : detail::views<variant_view>();
    } else {
        const auto variants = detail::call<Call>::variants();
        return { variants.data(), variants.size() };
    }
}

/* -- loading */

inline error preload(variant_view variant) noexcept { return kiln_preload(&variant.c()); }
inline error preload(group_view group) noexcept { return kiln_preload_group(&group.c()); }
inline error preload_all() noexcept { return kiln_preload_all(); }

/* What launches of the struct want: preload<kiln::softmax<float>>(). */
template <typename Call, detail::if_known<Call> = 0>
error preload() noexcept
{
    if constexpr (detail::call<Call>::is_group) {
        return kiln_preload_group(detail::call<Call>::group());
    } else {
        for (const kiln_variant *variant : detail::call<Call>::variants()) {
            const error outcome = kiln_preload(variant);
            if (outcome) {
                return outcome;
            }
        }
        return {};
    }
}

inline result<kiln_handles> load(variant_view variant) noexcept
{
    kiln_handles found = {};
    const int status = kiln_load(&variant.c(), &found);
    return status == 0 ? result<kiln_handles>(found) : result<kiln_handles>(status);
}

inline result<kiln_device> describe_device(std::int32_t device = -1) noexcept
{
    kiln_device found = {};
    const int status = kiln_describe_device(device, &found);
    return status == 0 ? result<kiln_device>(found) : result<kiln_device>(status);
}

[[nodiscard]] inline std::string explain_choice(variant_view variant, std::int32_t device = -1)
{
    std::string text(8192, '\0');
    const error outcome = kiln_explain_choice(&variant.c(), device, text.data(), text.size());
    text.resize(outcome ? 0 : std::strlen(text.c_str()));
    return outcome ? std::string(outcome.detail()) : text;
}

/* -- owners */

inline error unload() noexcept { return kiln_unload(); }

/* Unloads everything at the end of a scope, which no launch in another thread may outlive. */
class unload_guard {
public:
    [[nodiscard]] unload_guard() noexcept {}
    unload_guard(const unload_guard &) = delete;
    unload_guard &operator=(const unload_guard &) = delete;
    ~unload_guard() { static_cast<void>(kiln_unload()); }
};

/* Has launches take scratch memory from an allocator until the end of a scope, in which no other is set. The allocator has
 *
 *     void *allocate(std::size_t bytes, std::size_t align, kiln::stream on, std::int32_t device);
 *     void release(void *address, kiln::stream on, std::int32_t device);
 *
 * which may be called from several threads, and throw nothing: behind them is C.
 */
template <typename Allocator>
class scratch_guard {
public:
    [[nodiscard]] explicit scratch_guard(Allocator &allocator) noexcept : table_{ &allocator, &allocate, &release }
    {
        kiln_set_scratch_allocator(&table_);
    }
    scratch_guard(const scratch_guard &) = delete;
    scratch_guard &operator=(const scratch_guard &) = delete;
    ~scratch_guard() { kiln_set_scratch_allocator(nullptr); }

private:
    static void *allocate(
        void *user, std::size_t bytes, std::size_t align, CUstream_st *on, std::int32_t device) noexcept
    {
        return static_cast<Allocator *>(user)->allocate(bytes, align, stream(on), device);
    }
    static void release(void *user, void *address, CUstream_st *on, std::int32_t device) noexcept
    {
        static_cast<Allocator *>(user)->release(address, stream(on), device);
    }

    kiln_scratch_allocator table_;
};

} // namespace kiln

#endif
