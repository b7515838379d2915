/* What there is in a library, as C++17 and later see it: images, variants and groups, by name and in ranges.
 *
 * Views are one pointer to data of the library, which stays as long as the program.
 */
#ifndef KILN_VIEWS_HPP
#define KILN_VIEWS_HPP

#include <kiln/kiln_launch.h>
#include <kiln/kiln_types.hpp>

#include <cstddef>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>

namespace kiln {

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

/* Views over structs that lie one after the other in a record. */
template <typename View>
class list {
public:
    using element = typename View::c_type;

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
        View operator*() const noexcept { return View(*at_); }
        iterator &operator++() noexcept
        {
            at_++;
            return *this;
        }
        iterator operator++(int) noexcept { return iterator(at_++); }
        friend bool operator==(const iterator &a, const iterator &b) noexcept { return a.at_ == b.at_; }
        friend bool operator!=(const iterator &a, const iterator &b) noexcept { return a.at_ != b.at_; }

    private:
        friend class list;
        constexpr explicit iterator(const element *at) noexcept : at_(at) {}

        const element *at_ = nullptr;
    };

    constexpr list() noexcept = default;
    constexpr list(const element *data, std::size_t size) noexcept : data_(data), size_(size) {}

    iterator begin() const noexcept { return iterator(data_); }
    iterator end() const noexcept { return iterator(data_ + size_); }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr std::size_t size() const noexcept { return size_; }
    View operator[](std::size_t index) const noexcept { return View(data_[index]); }

private:
    const element *data_ = nullptr;
    std::size_t size_ = 0;
};

/* Whether two records are one: a program may have a copy of what a shared library has. */
template <typename Record>
bool is_same(const Record &a, const Record &b) noexcept
{
    return &a == &b || std::memcmp(static_cast<const void *>(&a), static_cast<const void *>(&b), sizeof a) == 0;
}

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

/* A parameter of an image; what has no function here is in the struct behind ->, as with all of these. */
class parameter_view {
public:
    using c_type = kiln_parameter;

    explicit parameter_view(const kiln_parameter &parameter) noexcept : c_(&parameter) {}
    const kiln_parameter &c() const noexcept { return *c_; }
    const kiln_parameter *operator->() const noexcept { return c_; }

    std::string_view name() const noexcept { return kiln_parameter_name(c_); }
    std::string_view type() const noexcept { return kiln_parameter_type(c_); }

private:
    const kiln_parameter *c_;
};

/* A value that is compiled into an image. */
class constant_view {
public:
    using c_type = kiln_constant;

    explicit constant_view(const kiln_constant &constant) noexcept : c_(&constant) {}
    const kiln_constant &c() const noexcept { return *c_; }
    const kiln_constant *operator->() const noexcept { return c_; }

    std::string_view name() const noexcept { return kiln_constant_name(c_); }
    std::string_view text() const noexcept { return kiln_constant_text(c_); }

private:
    const kiln_constant *c_;
};

/* A member of a variant's argument struct. */
class argument_view {
public:
    using c_type = kiln_argument;

    explicit argument_view(const kiln_argument &argument) noexcept : c_(&argument) {}
    const kiln_argument &c() const noexcept { return *c_; }
    const kiln_argument *operator->() const noexcept { return c_; }

    std::string_view name() const noexcept { return kiln_argument_name(c_); }
    std::string_view type() const noexcept { return kiln_argument_type(c_); }

private:
    const kiln_argument *c_;
};

class image_view {
public:
    using c_type = kiln_image;

    explicit image_view(const kiln_image &image) noexcept : c_(&image) {}
    const kiln_image &c() const noexcept { return *c_; }
    const kiln_image *operator->() const noexcept { return c_; }

    std::string_view id() const noexcept { return kiln_image_id(c_); }
    std::string_view variant() const noexcept { return kiln_image_variant(c_); }
    std::string_view group() const noexcept { return kiln_image_group(c_); }
    std::string_view kernel() const noexcept { return kiln_image_kernel(c_); }
    std::string_view dtype() const noexcept { return kiln_image_dtype(c_); }
    std::string_view block() const noexcept { return kiln_image_block(c_); }
    std::string_view target() const noexcept { return kiln_image_target(c_); }
    std::string_view entry() const noexcept { return kiln_image_entry(c_); }
    /* Of PTX only, else empty. */
    std::string_view ptx_isa() const noexcept { return detail::text(kiln_image_ptx_isa(c_)); }
    span<const std::byte> data() const noexcept { return { static_cast<const std::byte *>(kiln_image_data(c_)), c_->size }; }
    detail::list<parameter_view> parameters() const noexcept { return { kiln_image_parameters(c_), c_->parameter_count }; }
    detail::list<constant_view> constants() const noexcept { return { kiln_image_constants(c_), c_->constant_count }; }
    [[nodiscard]] bool verify() const noexcept { return kiln_image_verify(c_); }

    friend bool operator==(image_view a, image_view b) noexcept { return detail::is_same(*a.c_, *b.c_); }
    friend bool operator!=(image_view a, image_view b) noexcept { return !(a == b); }

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

    std::string_view name() const noexcept { return kiln_variant_name(c_); }
    std::string_view base() const noexcept { return kiln_variant_base(c_); }
    std::string_view group() const noexcept { return kiln_variant_group(c_); }
    std::string_view kernel() const noexcept { return kiln_variant_kernel(c_); }
    std::string_view dtype() const noexcept { return kiln_variant_dtype(c_); }
    std::string_view block() const noexcept { return kiln_variant_block(c_); }
    /* Empty for a variant that serves every call. */
    std::string_view select() const noexcept { return detail::text(kiln_variant_select(c_)); }
    detail::list<argument_view> arguments() const noexcept
    {
        return { kiln_variant_arguments(c_), c_->argument_count };
    }
    detail::views<image_view> images() const noexcept { return { kiln_variant_images(c_), c_->image_count }; }
    /* The fat binary with those for NVIDIA; null where they are separate. */
    const void *bundle() const noexcept { return kiln_variant_bundle(c_); }

    friend bool operator==(variant_view a, variant_view b) noexcept { return detail::is_same(*a.c_, *b.c_); }
    friend bool operator!=(variant_view a, variant_view b) noexcept { return !(a == b); }

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

    std::string_view name() const noexcept { return kiln_group_name(c_); }
    bool is_uniform() const noexcept { return c_->is_uniform; }
    detail::views<variant_view> variants() const noexcept { return { kiln_group_variants(c_), c_->variant_count }; }

    friend bool operator==(group_view a, group_view b) noexcept { return detail::is_same(*a.c_, *b.c_); }
    friend bool operator!=(group_view a, group_view b) noexcept { return !(a == b); }

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

} // namespace kiln

#endif
