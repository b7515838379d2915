/* Types of elements, the dtypes that they are, and device addresses that know what lies there. C++17 and later. */
#ifndef KILN_TYPES_HPP
#define KILN_TYPES_HPP

#include <kiln/kiln_launch.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

/* What cuda_fp16.h, cuda_bf16.h, cuda_fp8.h and HIP's hip_fp16.h define: their names alone, so that it makes no difference
 * whether they are included, and when. */
struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace kiln {

/* Values that C++ has no type for, as their bits. */
struct fp16 {
    std::uint16_t bits = 0;
};
struct bf16 {
    std::uint16_t bits = 0;
};
struct fp8e4nv {
    std::uint8_t bits = 0;
};
struct fp8e4b8 {
    std::uint8_t bits = 0;
};
struct fp8e4b15 {
    std::uint8_t bits = 0;
};
struct fp8e5 {
    std::uint8_t bits = 0;
};
struct fp8e5b16 {
    std::uint8_t bits = 0;
};

namespace detail {

template <typename T>
constexpr std::string_view builtin_name() noexcept
{
    constexpr bool is_number = std::is_same_v<T, signed char> || std::is_same_v<T, unsigned char> || std::is_same_v<T, short>
        || std::is_same_v<T, unsigned short> || std::is_same_v<T, int> || std::is_same_v<T, unsigned>
        || std::is_same_v<T, long> || std::is_same_v<T, unsigned long> || std::is_same_v<T, long long>
        || std::is_same_v<T, unsigned long long>;
    if constexpr (std::is_same_v<T, bool>) {
        return "i1";
    } else if constexpr (std::is_same_v<T, float>) {
        return "fp32";
    } else if constexpr (std::is_same_v<T, double>) {
        return "fp64";
    } else if constexpr (is_number) {
        constexpr std::string_view names[2][4] = { { "u8", "u16", "u32", "u64" }, { "i8", "i16", "i32", "i64" } };
        return names[std::is_signed_v<T>][sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3];
    } else {
        return {};
    }
}

} // namespace detail

/* The dtype of a type in the words of kernels.yaml: "fp16" for __half; empty for a type that is none. Say of a type of your
 * own what it holds, and pointers to it are taken for such data:
 *
 *     template <> inline constexpr std::string_view kiln::DataTypeName<MyHalf> = "fp16";
 */
template <typename T>
inline constexpr std::string_view DataTypeName = detail::builtin_name<T>();
template <typename T>
inline constexpr std::string_view DataTypeName<const T> = DataTypeName<T>;
template <>
inline constexpr std::string_view DataTypeName<fp16> = "fp16";
template <>
inline constexpr std::string_view DataTypeName<bf16> = "bf16";
template <>
inline constexpr std::string_view DataTypeName<fp8e4nv> = "fp8e4nv";
template <>
inline constexpr std::string_view DataTypeName<fp8e4b8> = "fp8e4b8";
template <>
inline constexpr std::string_view DataTypeName<fp8e4b15> = "fp8e4b15";
template <>
inline constexpr std::string_view DataTypeName<fp8e5> = "fp8e5";
template <>
inline constexpr std::string_view DataTypeName<fp8e5b16> = "fp8e5b16";
template <>
inline constexpr std::string_view DataTypeName<::__half> = "fp16";
template <>
inline constexpr std::string_view DataTypeName<::__nv_bfloat16> = "bf16";
template <>
inline constexpr std::string_view DataTypeName<::__nv_fp8_e4m3> = "fp8e4nv";
template <>
inline constexpr std::string_view DataTypeName<::__nv_fp8_e5m2> = "fp8e5";
/* HIP has another name for it on GPUs of NVIDIA, so that hip_bf16.h has to be included before. */
#ifdef _HIP_INCLUDE_HIP_AMD_DETAIL_HIP_BF16_H_
template <>
inline constexpr std::string_view DataTypeName<::__hip_bfloat16> = "bf16";
#endif

namespace detail {

/* A dtype as C has it; 0 for a word that is none. */
constexpr kiln_dtype dtype_called(std::string_view name) noexcept
{
    constexpr struct {
        std::string_view name;
        kiln_dtype dtype;
    } known[] = {
        { "i1", KILN_DTYPE_I1 },
        { "i8", KILN_DTYPE_I8 },
        { "i16", KILN_DTYPE_I16 },
        { "i32", KILN_DTYPE_I32 },
        { "i64", KILN_DTYPE_I64 },
        { "u8", KILN_DTYPE_U8 },
        { "u16", KILN_DTYPE_U16 },
        { "u32", KILN_DTYPE_U32 },
        { "u64", KILN_DTYPE_U64 },
        { "fp16", KILN_DTYPE_FP16 },
        { "bf16", KILN_DTYPE_BF16 },
        { "fp32", KILN_DTYPE_FP32 },
        { "fp64", KILN_DTYPE_FP64 },
        { "fp8e4nv", KILN_DTYPE_FP8E4NV },
        { "fp8e4b8", KILN_DTYPE_FP8E4B8 },
        { "fp8e4b15", KILN_DTYPE_FP8E4B15 },
        { "fp8e5", KILN_DTYPE_FP8E5 },
        { "fp8e5b16", KILN_DTYPE_FP8E5B16 },
    };
    for (const auto &each : known) {
        if (each.name == name) {
            return each.dtype;
        }
    }
    return {};
}

/* Whether a pointer to From may stand where elements of type To are wanted. */
template <typename From, typename To>
inline constexpr bool is_as = std::is_void_v<To> || std::is_same_v<std::remove_cv_t<From>, To>
    || (!DataTypeName<std::remove_cv_t<From>>.empty() && DataTypeName<std::remove_cv_t<From>> == DataTypeName<To>);

} // namespace detail

/* The dtype of a type, for functions in C; 0 for a type that is none. */
template <typename T>
inline constexpr kiln_dtype dtype_of = detail::dtype_called(DataTypeName<T>);

/* The address of elements in a device's memory; of anything, for void. It owns nothing, and the host cannot look there.
 *
 * Made of a pointer to T or to another type with T's dtype; of addresses that say nothing of what lies there (void *, the
 * CUdeviceptr of the driver) where that is written out: device_ptr<float>(address). A signature does not tell which
 * arguments a kernel writes to, so that pointers to const are taken as well.
 */
template <typename T>
class device_ptr {
public:
    using element_type = T;

    constexpr device_ptr() noexcept = default;
    constexpr device_ptr(std::nullptr_t) noexcept {}

    template <typename From, std::enable_if_t<!std::is_void_v<From> && detail::is_as<From, T>, int> = 0>
    constexpr device_ptr(From *address) noexcept : address_(const_cast<std::remove_cv_t<From> *>(address))
    {
    }

    template <typename From, std::enable_if_t<!std::is_same_v<From, T> && detail::is_as<From, T>, int> = 0>
    constexpr device_ptr(device_ptr<From> other) noexcept : address_(other.get())
    {
    }

    template <typename From, std::enable_if_t<std::is_void_v<From>, int> = 0>
    constexpr explicit device_ptr(From *address) noexcept : address_(const_cast<void *>(address))
    {
    }

    template <typename Number,
        std::enable_if_t<std::is_unsigned_v<Number> && sizeof(Number) == sizeof(void *), int> = 0>
    explicit device_ptr(Number address) noexcept
        : address_(reinterpret_cast<void *>(static_cast<std::uintptr_t>(address)))
    {
    }

    constexpr void *get() const noexcept { return address_; }
    constexpr explicit operator bool() const noexcept { return address_ != nullptr; }

    /* That many elements further on. */
    device_ptr operator+(std::ptrdiff_t elements) const noexcept
    {
        static_assert(!std::is_void_v<T>, "the address of anything has no elements to go on by");
        const auto bytes = static_cast<std::uintptr_t>(elements) * sizeof(T);
        return device_ptr(reinterpret_cast<std::uintptr_t>(address_) + bytes);
    }

    friend constexpr bool operator==(device_ptr a, device_ptr b) noexcept { return a.address_ == b.address_; }
    friend constexpr bool operator!=(device_ptr a, device_ptr b) noexcept { return a.address_ != b.address_; }

private:
    void *address_ = nullptr;
};

/* Some objects that lie one after the other, and belong to somebody else. */
template <typename T>
class span {
public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;

    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t index) const noexcept { return data_[index]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace kiln

#endif
