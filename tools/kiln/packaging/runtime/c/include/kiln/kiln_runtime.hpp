/* What every library has in C++17 and later, on top of its headers in C: errors, launches, owners.
 *
 * Nothing here throws but what is called or_throw, and nothing allocates but explain_choice; builds with -fno-exceptions
 * and -fno-rtti. What a function does, and when it may be called, is said in kiln_launch.h at the function of the same name.
 */
#ifndef KILN_RUNTIME_HPP
#define KILN_RUNTIME_HPP

#include <kiln/kiln_launch.h>
#include <kiln/kiln_types.hpp>
#include <kiln/kiln_views.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
